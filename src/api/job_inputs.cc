// SPDX-License-Identifier: Apache-2.0
#include "api/job_inputs.h"

#include "foundation/sys/files.h"
#include "storage/table/workspace.h"

namespace falaj::api {

std::string stage_dataset(data::Datasets& datasets, const vault::Where& where, const std::string& version,
                          const std::string& directory) {
  const auto named = data::parse_version_name(version);
  const auto room = datasets.room();
  const auto found = datasets.version(where, named.name, named.number);
  datasets.open(*room, where, found, "rows");
  const auto files = sys::open_files(directory);
  const auto file = files->create();
  room->put("out", table::sink_to([&](BytesView bytes) { file->write(bytes); }));
  room->run("COPY (SELECT * FROM rows) TO 'out' (FORMAT parquet, COMPRESSION zstd)");
  file->commit("rows.parquet", sys::NewFile::Durable::at_sync, sys::NewFile::Existing::replace);
  return found.short_id();
}

}  // namespace falaj::api
