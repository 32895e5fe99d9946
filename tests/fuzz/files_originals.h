// The files that mutants are made from: small models with every chain, as torch saves them, unfused and fused.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "../tools/files.h"
#include "tools/archive.h"

namespace tailor::fuzz {

using tool::Data;
using Contents = std::map<std::string, std::string>;  // of a file's records, by name

struct Original {
  std::string name;  // such as "every chain, fused"
  Data data;
  tool::Archive archive;
  Contents contents;
};

std::vector<Original> originals();

// The records as torch reads them, which need not be what a checker of ours thinks they are.
Contents as_torch_reads(const Data& data);

// The archive of these records, uncompressed and with right checksums.
Data packed(const Contents& contents);

}  // namespace tailor::fuzz
