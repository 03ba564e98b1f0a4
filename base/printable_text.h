// SPDX-License-Identifier: Apache-2.0
// What others wrote, as it may be shown to people: at a terminal, in a log line, in a document.
// What would steer a terminal, forge a line, hide or turn the direction of what follows is shown as
// an escape: \n, \x1b, \u202e; so are bytes that are not UTF-8. All else stays. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace kairos {

// On one line: line feeds and tabs are escapes, too.
std::string Printable(std::string_view text);

// Line feeds and tabs stay. Every line but the first begins with `indent`, so that none can pass
// for a line of ours.
std::string PrintableLines(std::string_view text, std::string_view indent);

// On one line between double quotes; those inside, and backslashes, have a backslash before them.
std::string QuotedText(std::string_view text);

}  // namespace kairos
