# SPDX-License-Identifier: Apache-2.0
# Compiler, linker and cache. Nothing here is about the product.

# ccache: paths below the source tree are made relative, so a second checkout elsewhere hits the same cache. What a file
# includes is learned from compiling it, not from preprocessing it first, which is a twentieth less when nothing is cached.
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1
      CCACHE_PCH_EXTSUM=1 CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
endif()

find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()

add_compile_options(
  -Wall -Wextra -Werror -Wvla -Wnon-virtual-dtor -fno-omit-frame-pointer
  -ffile-prefix-map=${CMAKE_SOURCE_DIR}/=)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  add_compile_options(-Wthread-safety -Wno-unknown-warning-option -Wno-unused-command-line-argument)
else()
  # False positives of g++ 12 inside inlined standard containers at -O2 and under the sanitizers.
  add_compile_options(-Wno-maybe-uninitialized -Wno-stringop-overflow -Wno-restrict -Wno-array-bounds
                      -Wno-stringop-overread -Wno-dangling-pointer)
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  add_compile_options(-D_FORTIFY_SOURCE=2 -fstack-protector-strong)
  add_link_options(-Wl,-z,relro,-z,now)
endif()

set(FALAJ_SANITIZE "" CACHE STRING "Sanitizers of this build, as -fsanitize takes them")
if(FALAJ_SANITIZE)
  add_compile_options(-fsanitize=${FALAJ_SANITIZE} -fno-sanitize-recover=all)
  add_compile_definitions(FALAJ_SANITIZED)
  add_link_options(-fsanitize=${FALAJ_SANITIZE})
  if(FALAJ_SANITIZE MATCHES "undefined" AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # Both are tested at every access, a fifth of what there is to compile: only in what is fuzzed, which reads bytes of
    # others (module.cmake). Elsewhere the address sanitizer stops whoever reads through a null pointer.
    add_compile_options(-fno-sanitize=null,alignment)
  endif()
  if(FALAJ_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Fences are not understood by the thread sanitizer; Asio's are harmless. The warning is about that only.
    add_compile_options(-Wno-tsan)
  endif()
endif()
set(FALAJ_FUZZ OFF CACHE BOOL "Build the libFuzzer programs (clang only)")

set(Boost_NO_WARN_NEW_VERSIONS ON)  # CMake 3.25 does not know 1.81 by heart
find_package(Boost 1.81 EXACT REQUIRED COMPONENTS json)
find_package(fmt REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(Threads REQUIRED)
find_package(GTest REQUIRED)
find_package(benchmark REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)
find_package(ZLIB REQUIRED)
find_package(yaml-cpp REQUIRED)

# DuckDB comes as one shared library and its headers (./setup). Programs look for it beside themselves, in lib/ of their
# build, so that a build tree, or what is installed from it, can be moved.
add_library(duckdb SHARED IMPORTED)
set_target_properties(duckdb PROPERTIES IMPORTED_LOCATION ${CMAKE_BINARY_DIR}/lib/libduckdb.so IMPORTED_NO_SONAME ON)
target_include_directories(duckdb SYSTEM INTERFACE ${CMAKE_SOURCE_DIR}/third_party/duckdb/include)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
file(CREATE_LINK ${CMAKE_SOURCE_DIR}/third_party/@duckdb_node-bindings-linux-x64/libduckdb.so
     ${CMAKE_BINARY_DIR}/lib/libduckdb.so SYMBOLIC)
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)

# ONNX Runtime is opened while a program runs (compute/infer), so that another build of it can stand in: only its headers
# are compiled with, and its library lies beside DuckDB's.
add_library(onnxruntime_headers INTERFACE)
target_include_directories(onnxruntime_headers SYSTEM INTERFACE
                           ${CMAKE_SOURCE_DIR}/third_party/libonnxruntime-dev/onnxruntime)
file(CREATE_LINK ${CMAKE_SOURCE_DIR}/third_party/onnxruntime-node/libonnxruntime.so.1
     ${CMAKE_BINARY_DIR}/lib/libonnxruntime.so.1 SYMBOLIC)
add_compile_definitions(BOOST_ASIO_NO_DEPRECATED BOOST_ASIO_DISABLE_BOOST_DATE_TIME)
