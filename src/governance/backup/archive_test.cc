// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "governance/backup/archive.h"

#include "foundation/base/testing.h"
#include "foundation/sys/random.h"

namespace falaj::backup {
namespace {

constexpr std::string_view kSecret = "correct horse battery";
constexpr crypto::PasswordCost kCheap{8192, 1};
constexpr std::size_t kHeadBytes = 15 + 16 + 8 + 4;

using Items = std::vector<ArchiveReader::Item>;

Bytes write(const Items& items) {
  Bytes file;
  ArchiveWriter writer(
      kSecret, [&](BytesView piece) { file.insert(file.end(), piece.begin(), piece.end()); }, kCheap);
  for (const auto& item : items) writer.add(item.part, item.bytes);
  writer.finish();
  return file;
}

// Gives at most `most` bytes at a time.
ArchiveReader::Source pieces_of(BytesView file, std::size_t most = 1 << 20) {
  return [file, most](std::span<std::byte> out) mutable {
    const std::size_t n = std::min({out.size(), file.size(), most});
    std::copy_n(file.begin(), n, out.begin());
    file = file.subspan(n);
    return n;
  };
}

Items read(BytesView file, std::size_t most = 1 << 20, std::string_view passphrase = kSecret) {
  ArchiveReader reader(passphrase, pieces_of(file, most));
  Items items;
  while (auto item = reader.next()) items.push_back(std::move(*item));
  return items;
}

void expect_same(const Items& got, const Items& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(got[i].part, wanted[i].part);
    EXPECT_TRUE(got[i].bytes == wanted[i].bytes) << "part " << i;
  }
}

Bytes bytes_of(std::size_t size, std::uint64_t seed) {
  sys::SimRandom random(seed);
  Bytes out(size);
  random.fill(out);
  return out;
}

// What reading the file throws; nothing when it reads.
std::optional<Error> error_of(BytesView file) {
  try {
    read(file);
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  }
}

void expect_found(BytesView file, const std::string& what) {
  const auto error = error_of(file);
  ASSERT_TRUE(error) << what << ": read as if nothing had happened";
  EXPECT_TRUE(error->code() == Code::corrupt || error->code() == Code::denied) << what << ": " << error->what();
  EXPECT_EQ(std::string_view(error->what()).substr(0, 7), "backup:") << error->what();
}

const Items kSmall = {{Part::about, to_bytes("{}")}, {Part::row, to_bytes("row")}, {Part::end, {}}};

TEST(Archive, GivesBackPartsOfEverySizeNearABoundary) {
  constexpr std::size_t kPiece = 1 << 20, kChunk = crypto::kSealChunkBytes;
  for (const std::size_t around : {std::size_t{0}, kChunk, kPiece, kPartBytesMax}) {
    for (const int off : {-6, -5, -1, 0, 1}) {
      if (static_cast<std::int64_t>(around) + off < 0 || around + static_cast<std::size_t>(off) > kPartBytesMax)
        continue;
      const Items items = {{Part::piece, bytes_of(around + static_cast<std::size_t>(off), around)},
                           {Part::row, {}},
                           {Part::piece, bytes_of(1, 2)}};
      expect_same(read(write(items)), items);
    }
  }
}

TEST(Archive, GivesBackRandomPartsReadInAnyPieces) {
  sys::SimRandom random(99);
  Items items;
  for (int i = 0; i < 300; ++i)
    items.push_back({static_cast<Part>(1 + random.below(8)), bytes_of(random.below(20'000), random.next())});
  const Bytes file = write(items);
  for (const std::size_t most : {std::size_t{1 << 20}, std::size_t{4099}, std::size_t{7}})
    expect_same(read(file, most), items);
}

TEST(Archive, IsNeverTheSameTwiceAndShowsNothing) {
  const Items items = {{Part::piece, to_bytes("a secret that must not show")}};
  const Bytes one = write(items), two = write(items);
  EXPECT_NE(one, two);
  EXPECT_EQ(as_text(one).find("a secret"), std::string_view::npos);
}

TEST(Archive, WantsAPassphraseWorthTheName) {
  const auto none = [](BytesView) {};
  EXPECT_ERROR(ArchiveWriter("short", none, kCheap), Code::invalid);
  EXPECT_ERROR(read(write(kSmall), 1 << 20, "correct horse batterz"), Code::denied);
  EXPECT_ERROR(read(write(kSmall), 1 << 20, ""), Code::denied);
}

TEST(Archive, FindsEveryByteThatIsChanged) {
  const Bytes file = write(kSmall);
  for (std::size_t i = 0; i < file.size(); ++i) {
    for (const unsigned bit : {0U, 7U}) {
      Bytes altered = file;
      altered[i] ^= std::byte{1} << bit;
      expect_found(altered, "bit " + std::to_string(bit) + " of byte " + std::to_string(i));
    }
  }
}

TEST(Archive, FindsEveryCutAndEverythingAppended) {
  const Bytes file = write(kSmall);
  for (std::size_t i = 0; i < file.size(); ++i) expect_found(BytesView(file).first(i), "cut to " + std::to_string(i));
  for (const std::size_t more : {1U, 16U, 100U, 70'000U}) {
    Bytes longer = file;
    longer.resize(longer.size() + more);
    expect_found(longer, "longer by " + std::to_string(more));
  }
  Bytes twice = file;
  twice.insert(twice.end(), file.begin(), file.end());
  expect_found(twice, "twice");
}

TEST(Archive, FindsRegionsThatAreMovedOrOfAnotherBackup) {
  constexpr std::size_t kSealed = crypto::kSealChunkBytes + crypto::kSealTagBytes;
  Items items;
  for (int i = 0; i < 6; ++i) items.push_back({Part::piece, Bytes(60'000, std::byte{7})});
  const Bytes file = write(items), other = write(items);
  const std::size_t first = file.size() % kSealed;  // somewhere inside; what matters is that regions differ
  const auto at = [&](std::size_t n) { return kHeadBytes + crypto::kSaltBytes + n * kSealed; };
  for (std::size_t shift : {std::size_t{0}, std::size_t{4}, std::size_t{36}, first}) {
    Bytes swapped = file;
    std::swap_ranges(swapped.begin() + static_cast<std::ptrdiff_t>(at(0) + shift),
                     swapped.begin() + static_cast<std::ptrdiff_t>(at(1) + shift),
                     swapped.begin() + static_cast<std::ptrdiff_t>(at(2) + shift));
    expect_found(swapped, "swapped regions");
    Bytes spliced = file;
    std::copy_n(other.begin() + static_cast<std::ptrdiff_t>(at(1) + shift), kSealed,
                spliced.begin() + static_cast<std::ptrdiff_t>(at(1) + shift));
    expect_found(spliced, "a region of another backup");
    Bytes without = file;
    without.erase(without.begin() + static_cast<std::ptrdiff_t>(at(1) + shift),
                  without.begin() + static_cast<std::ptrdiff_t>(at(2) + shift));
    expect_found(without, "a region left out");
  }
  Bytes head = file;
  std::copy_n(other.begin(), kHeadBytes, head.begin());
  expect_found(head, "the head of another backup");
}

TEST(Archive, RefusesAHeadThatWouldTakeAllMemory) {
  Bytes file = write(kSmall);
  for (std::size_t i = 31; i < 39; ++i) file[i] = std::byte{0xFF};
  EXPECT_ERROR(read(file), Code::corrupt);
}

TEST(Archive, IsNoBackupWhenItIsSomethingElse) {
  EXPECT_ERROR(read({}), Code::corrupt);
  EXPECT_ERROR(read(bytes_of(100'000, 3)), Code::corrupt);
}

}  // namespace
}  // namespace falaj::backup
