// A model as text, for a person to read and to be kept in a file: its classes with what they hold, what is known of its
// chains, its calls. Read back it is judged as it was when it was drawn, with the same values.
//
//   ## What a person has to say of it.
//   # float64, in 5, out 12, groups 3, values 4711
//   # class Net in net.py, the model
//   #   w1: parameter (12, 5), wants a gradient
//   #   bn2: module BatchNorm1d
//   def forward(self, x):
//       …
//   # net.py:2: linear_mul_batch_norm, fuses
//   # call forward: plain, 4 rows, training, with gradients
#pragma once
#include "pass_model.h"

namespace tailor::fuzz {

// Without what is dropped, and without attributes that nobody names.
std::string description_of(const Model& model, const Without& without);

// Each line of such a text can be dropped. Goes through all doors. Throws std::runtime_error, which names the line.
Model read_model(const std::string& description);

}  // namespace tailor::fuzz
