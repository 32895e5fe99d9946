// Where the author wrote what a node stands for.
#pragma once
#include <string>

#include "graph.h"

namespace tailor {

// The user's own line, such as "net.py:31": the innermost frame that is not inside torch.nn.
std::string source_line(const Node* node);
bool has_users_line(const Node* node);  // whether there is such a frame
bool is_torchs_own(const Node* node);   // whether it is known to be written in torch.nn

// Of a part of a fused chain that was written out again with the line of its linear: its own is not known. And where its chain then begins;
// empty for other nodes.
void keep_line_of_chain(Node* node);
std::string line_of_chain(const Node* node);

// Lets errors of `node` point to the user's line of `from`, also after the file was saved, which forgets inlined frames.
void take_user_line(Node* node, const Node* from);

// The same for all nodes of a graph whose calls were inlined, so that saving it forgets no line.
void keep_user_lines(Block* top);

}  // namespace tailor
