// What nearly every file of ours includes and what takes longest to read. A file still includes what it uses.
#pragma once
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/ir/irparser.h>
#include <torch/script.h>
