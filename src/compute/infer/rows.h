// SPDX-License-Identifier: Apache-2.0
#pragma once
// Private to infer: whether requests to a model may be put together.

namespace falaj::infer {

class Model;

// Whether the first size of every input and output is the number of rows, and each row is answered by itself. The sizes
// must say so (free, and of one name where they have names), and it is tried: two rows at once must give what they give
// one by one. A model that mixes its rows, as by a mean over all of them, would tell one caller about another. Where it
// cannot be tried with made-up values the sizes are believed, unless they contradict each other.
bool has_rows_first(const Model& model);

}  // namespace falaj::infer
