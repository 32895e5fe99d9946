// What a run came to, for people and for docs/trust.md.
#pragma once
#include <ostream>

#include "pass_workers.h"
#include "program.h"

namespace tailor::fuzz {

void print_tables(std::ostream& out, const Tally& tally);
Record record_of(const std::string& command, const Result& result);

}  // namespace tailor::fuzz
