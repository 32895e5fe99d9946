// What nearly every file of ours includes and what takes longest to read. A file still includes what it uses. More is not
// better: what the templates here are used for is instantiated anew at the end of every file, 2 s; with torch/script.h, 4 s.
#pragma once
#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/ir/irparser.h>
