// SPDX-License-Identifier: Apache-2.0
#include "storage/blob/root_key_file.h"

#include "foundation/crypto/root_key.h"

namespace falaj::blob {

namespace {
constexpr std::size_t kFileBytesMax = 4096;

Bytes encoded(const crypto::Key& root, std::optional<std::string_view> passphrase) {
  return passphrase ? crypto::lock_root_key(root, *passphrase) : crypto::encode_root_key(root);
}
}  // namespace

crypto::Key load_or_make_root_key(sys::Files& files, const std::string& name,
                                  std::optional<std::string_view> passphrase) {
  if (!files.stat(name)) {
    // Keeps a file that another process made meanwhile; what is then read is what counts.
    auto file = files.create();
    file->write(encoded(crypto::Key::random(), passphrase));
    file->commit(name, sys::NewFile::Durable::now, sys::NewFile::Existing::keep);
  }
  return crypto::open_root_key(files.read_all(name, kFileBytesMax), passphrase);
}

void replace_root_key(sys::Files& files, const std::string& name, const crypto::Key& root,
                      std::optional<std::string_view> passphrase) {
  files.write_all(name, encoded(root, passphrase));
}

}  // namespace falaj::blob
