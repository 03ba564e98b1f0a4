// SPDX-License-Identifier: Apache-2.0
// The manual page of a program, in the macros of man(7). Pure.
#pragma once

#include <string>

#include "usage/program.h"

namespace kairos {

std::string ManualPage(const Program& program, const CLI::App& app);

}  // namespace kairos
