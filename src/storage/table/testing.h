// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "storage/table/workspace.h"

namespace falaj::table {

class MemorySource final : public Source {
 public:
  explicit MemorySource(Bytes bytes) : bytes_(std::move(bytes)) {}
  std::uint64_t size() const override { return bytes_.size(); }
  void read(std::uint64_t offset, std::span<std::byte> out) const override;

 private:
  const Bytes bytes_;
};

class MemorySink final : public Sink {
 public:
  void write(BytesView bytes) override { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  Bytes take() { return std::move(bytes_); }

 private:
  Bytes bytes_;
};

// All that a Parquet file says, as text, a row a line.
std::string parquet_text(Workspace& room, const Bytes& file);
// All rows of an answer as text; "null" for null.
std::vector<std::vector<std::string>> rows(Workspace& room, const std::string& sql, std::span<const Value> values = {});

}  // namespace falaj::table
