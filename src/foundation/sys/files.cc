// SPDX-License-Identifier: Apache-2.0
#include "foundation/sys/files.h"

#include <algorithm>

#include "foundation/base/error.h"

namespace falaj::sys {

Bytes Files::read_all(const std::string& path, std::size_t bytes_max) {
  const auto file = open(path);
  if (file->size() > bytes_max) throw Error(Code::exhausted, "reading a file: longer than allowed");
  Bytes out(file->size());
  out.resize(file->read(0, out));
  return out;
}

void Files::write_all(const std::string& path, BytesView bytes) {
  const auto file = create();
  file->write(bytes);
  file->commit(path, NewFile::Durable::now, NewFile::Existing::replace);
}

}  // namespace falaj::sys
