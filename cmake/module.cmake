# SPDX-License-Identifier: Apache-2.0
# falaj_module(LIBS ...): the directory that calls it becomes one static library, linked with what src/layers.txt
# allows it and nothing else of ours, and one program that proves it (the whole archive with only those).
#   x.cc x.h       the library            x_test.cc   into one test program of the directory
#   testing.cc .h  test support, linked into the tests of this directory and of those above it
#   main.cc        left to the directory's own CMakeLists.txt
#   x_bench.cc     one benchmark program  x_fuzz.cc   one libFuzzer program, seeded from testdata/x_fuzz/
# FUZZED x.cc ...: of a large directory, the files whose branches lead its fuzzers; without it, all files do.

# Directories whose own code one thread runs, or whose tests start none: what they wire together is tested with threads in
# its own directory, and what they guard with a mutex is proven by clang's lock analysis. Not for the thread sanitizer.
set(FALAJ_ONE_THREAD foundation/base foundation/config foundation/crypto foundation/expr foundation/stats
    governance/backup lifecycle/alerts lifecycle/data lifecycle/lookup lifecycle/loop lifecycle/outbox lifecycle/schedule lifecycle/traffic lifecycle/watch
    compute/recipe compute/graph compute/loader lifecycle/serving cli api apps/falaj)

# Directories in which tests spend most of their time: sanitizers optimise these, which doubles what they take to
# compile and halves what their tests take. Everywhere else compiling is what takes long.
set(FALAJ_BUSY foundation/base foundation/crypto foundation/net foundation/stats storage/blob)

# Directories whose code depends on the optimiser (loops that become vectors, sums that must come out the same), whose
# tests count what sanitizers are too slow for, or start confined programs, in which sanitizers have no room: ./test runs
# their tests in the release build, too. Tests of all others it runs where they find most, under the sanitizers; `./test
# unit` runs all of them in the release build.
set(FALAJ_OPTIMISED foundation/stats lifecycle/jobs lifecycle/lookup lifecycle/schedule lifecycle/traffic lifecycle/watch
    compute/graph compute/infer compute/loader compute/serve compute/train apps/falaj)

# Directories that wait for people, disks and other programs: the release build optimises these less, which takes half as
# long to compile.
set(FALAJ_UNHURRIED foundation/config governance/backup lifecycle/alerts lifecycle/flow lifecycle/loop lifecycle/outbox
    lifecycle/serving cli apps/falaj)

set(FALAJ_DIRECTORIES)
file(STRINGS ${CMAKE_SOURCE_DIR}/src/layers.txt layer_lines REGEX "^[a-z]")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/layers.txt)
foreach(line IN LISTS layer_lines)
  string(REGEX MATCH "^([^:]+):(.*)$" _ "${line}")
  set(dir ${CMAKE_MATCH_1})
  separate_arguments(uses UNIX_COMMAND "${CMAKE_MATCH_2}")
  list(APPEND FALAJ_DIRECTORIES ${dir})
  set(FALAJ_USES_${dir} ${uses})
endforeach()

function(falaj_target_name dir out)
  string(REPLACE "/" "_" name ${dir})
  set(${out} falaj_${name} PARENT_SCOPE)
endfunction()

# What the compiler is given instead of `sources`: files that include several of one directory, of at most so many bytes
# together, so that headers are read and templates made once for all of them. Names in anonymous namespaces must then
# differ within a directory. Not CMake's own UNITY_BUILD: its files name absolute paths, so another checkout would miss
# the compiler's cache. Files with options of their own are united with those that have the same.
# What ./test builds is united, the release build in 510 s of processor time instead of 950. That each file includes what
# it uses is read by tools/check, and proven by builds without FALAJ_UNITED, as developers make them (debug, clang).
set(FALAJ_UNITED OFF CACHE BOOL "Compile several files of a directory at once")
set(FALAJ_UNITED_BYTES 262144 CACHE STRING "How many bytes of source at most are compiled as one")
function(falaj_united target out)
  if(NOT FALAJ_UNITED)
    set(${out} ${ARGN} PARENT_SCOPE)
    return()
  endif()
  set(united)
  foreach(source IN LISTS ARGN)
    get_source_file_property(own_options ${source} COMPILE_OPTIONS)
    get_filename_component(parent ${source} DIRECTORY)
    string(MD5 kind "${parent} ${own_options}")  # files that may be compiled as one
    file(SIZE ${source} size)
    math(EXPR together "${together_${kind}} + ${size}")
    if(NOT DEFINED file_${kind} OR together GREATER FALAJ_UNITED_BYTES)
      list(LENGTH united number)
      set(file_${kind} ${CMAKE_BINARY_DIR}/united/${target}_${number}.cc)
      set(options_${number})
      if(own_options)
        set(options_${number} ${own_options})
      endif()
      list(APPEND united ${file_${kind}})
      set(number_${kind} ${number})
      set(together ${size})
    endif()
    set(together_${kind} ${together})
    file(RELATIVE_PATH path ${CMAKE_SOURCE_DIR}/src ${source})
    string(APPEND text_${number_${kind}} "#include \"${path}\"\n")
  endforeach()
  set(number 0)
  foreach(file IN LISTS united)
    file(CONFIGURE OUTPUT ${file} CONTENT "${text_${number}}" @ONLY)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # takes what such a file includes for headers; collects garbage too often
      list(APPEND options_${number} -Wno-subobject-linkage --param=ggc-min-heapsize=524288)
    endif()
    set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "${options_${number}}")
    math(EXPR number "${number} + 1")
  endforeach()
  set(${out} ${united} PARENT_SCOPE)
endfunction()

# Headers that nearly every file includes, read once (precompiled) and not for each of them: a fifth less to compile with
# clang. Only where files are united: elsewhere each still shows that it includes what it uses. The compiler's cache takes
# precompiled headers for what is in the file beside them (toolchain.cmake), which is the same in every checkout.
set(FALAJ_SHARED_HEADERS OFF)
if(FALAJ_UNITED AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  set(FALAJ_SHARED_HEADERS ON)
endif()
function(falaj_share_headers name header)  # NAME HEADER OPTION...: to be included as NAME where these options hold
  set(made ${CMAKE_BINARY_DIR}/shared/${name}.pch)
  separate_arguments(flags UNIX_COMMAND "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_DEBUG} -std=c++20")
  get_directory_property(options COMPILE_OPTIONS)
  get_directory_property(definitions COMPILE_DEFINITIONS)
  list(TRANSFORM definitions PREPEND -D)
  set(compile ${CMAKE_CXX_COMPILER} ${flags} ${options} ${definitions} ${ARGN} -I${CMAKE_SOURCE_DIR}/src -x c++-header)
  add_custom_command(
    OUTPUT ${made} ${made}.sum
    COMMAND ${compile} -Xclang -fno-pch-timestamp ${header} -o ${made} -MD -MT ${made} -MF ${made}.d
    COMMAND sh -c "\"$@\" | sha256sum >${made}.sum" sum ${compile} -E -P ${header}
    DEPENDS ${header}
    DEPFILE ${made}.d
    VERBATIM)
  add_custom_target(${name} DEPENDS ${made})
endfunction()
function(falaj_include_shared target name)  # TARGET NAME SOURCE...
  if(FALAJ_SHARED_HEADERS)
    add_dependencies(${target} ${name})
    foreach(source IN LISTS ARGN)
      get_source_file_property(own_options ${source} COMPILE_OPTIONS)
      if(NOT own_options MATCHES "-O[1-3]")  # must be the same
        set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS
                     -include-pch ${CMAKE_BINARY_DIR}/shared/${name}.pch -Xclang -fno-pch-timestamp)
      endif()
    endforeach()
  endif()
endfunction()

# A third less to compile; what tests call stays optimised.
function(falaj_for_tests target)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${target} PRIVATE -Og)
  endif()
endfunction()

function(falaj_module)
  cmake_parse_arguments(M "" "" "LIBS;TEST_LIBS;FUZZED" ${ARGN})
  file(RELATIVE_PATH dir ${CMAKE_SOURCE_DIR}/src ${CMAKE_CURRENT_SOURCE_DIR})
  if(NOT dir IN_LIST FALAJ_DIRECTORIES)
    message(FATAL_ERROR "src/${dir} is not in src/layers.txt: add a line saying what it may use")
  endif()
  falaj_target_name(${dir} name)

  file(GLOB_RECURSE sources CONFIGURE_DEPENDS *.cc)
  set(tests ${sources})
  set(benches ${sources})
  set(fuzzers ${sources})
  set(support ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER benches INCLUDE REGEX "_bench\\.cc$")
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cc$")
  list(FILTER support INCLUDE REGEX "/testing\\.cc$")
  list(FILTER sources EXCLUDE REGEX "(_test|_bench|_fuzz|/testing|/main)\\.cc$")

  set(below)
  set(below_support)
  foreach(used IN LISTS FALAJ_USES_${dir})
    falaj_target_name(${used} used_name)
    list(APPEND below ${used_name})
    get_target_property(more ${used_name} FALAJ_TEST_SUPPORT)
    if(more)
      list(APPEND below_support ${more})
    endif()
  endforeach()

  set(fuzzed)
  if(FALAJ_FUZZ AND fuzzers)
    set(fuzzed ${sources})
    if(M_FUZZED)
      list(TRANSFORM M_FUZZED PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE fuzzed)
    endif()
    list(REMOVE_ITEM sources ${fuzzed})
    falaj_united(${name}_fuzzed fuzzed ${fuzzed})
    set_property(SOURCE ${fuzzed} APPEND PROPERTY COMPILE_OPTIONS -fsanitize=fuzzer-no-link,null,alignment)
  endif()
  falaj_united(${name} sources ${sources})
  add_library(${name} STATIC ${sources} ${fuzzed})
  if(FALAJ_SANITIZE AND dir IN_LIST FALAJ_BUSY)
    target_compile_options(${name} PRIVATE -O1)
  else()
    falaj_include_shared(${name} shared_headers ${sources})
    if(fuzzed)
      falaj_include_shared(${name} shared_fuzzed_headers ${fuzzed})
    endif()
  endif()
  if(CMAKE_BUILD_TYPE STREQUAL "Release" AND dir IN_LIST FALAJ_UNHURRIED)
    target_compile_options(${name} PRIVATE -Og)
  endif()
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(${name} PUBLIC ${below} ${M_LIBS})

  file(WRITE ${CMAKE_BINARY_DIR}/main.cc.new "int main() {}\n")
  file(COPY_FILE ${CMAKE_BINARY_DIR}/main.cc.new ${CMAKE_BINARY_DIR}/main.cc ONLY_IF_DIFFERENT)
  add_executable(${name}_links_alone ${CMAKE_BINARY_DIR}/main.cc)
  target_link_libraries(${name}_links_alone PRIVATE "$<LINK_LIBRARY:WHOLE_ARCHIVE,${name}>")
  set_target_properties(${name}_links_alone PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/links_alone)

  if(support)
    add_library(${name}_testing STATIC EXCLUDE_FROM_ALL ${support})
    falaj_for_tests(${name}_testing)
    falaj_include_shared(${name}_testing shared_test_headers ${support})
    target_link_libraries(${name}_testing PUBLIC ${name} ${below_support} GTest::gtest)
    list(APPEND below_support ${name}_testing)
  endif()
  list(REMOVE_DUPLICATES below_support)
  set_target_properties(${name} PROPERTIES FALAJ_TEST_SUPPORT "${below_support}")

  if(tests)
    falaj_united(${name}_test tests ${tests})
    add_executable(${name}_test EXCLUDE_FROM_ALL ${tests})
    falaj_for_tests(${name}_test)
    falaj_include_shared(${name}_test shared_test_headers ${tests})
    target_link_libraries(${name}_test PRIVATE ${name} ${below_support} ${M_TEST_LIBS} GTest::gtest GTest::gmock GTest::gtest_main)
    # Relative to the root of the checkout, where tests are run, so that another checkout hits the compiler's cache.
    target_compile_definitions(${name}_test PRIVATE FALAJ_TESTDATA="src/${dir}/testdata")
    set_target_properties(${name}_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    add_test(NAME ${dir} COMMAND ${name}_test WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    if(NOT (FALAJ_SANITIZE MATCHES thread AND dir IN_LIST FALAJ_ONE_THREAD))
      set_property(GLOBAL APPEND PROPERTY FALAJ_TEST_PROGRAMS ${name}_test)
    endif()
    if(dir IN_LIST FALAJ_OPTIMISED)
      set_property(GLOBAL APPEND PROPERTY FALAJ_OPTIMISED_TESTS ${name}_test)
    endif()
  endif()

  foreach(bench IN LISTS benches)
    get_filename_component(stem ${bench} NAME_WE)
    add_executable(${stem} EXCLUDE_FROM_ALL ${bench})
    target_link_libraries(${stem} PRIVATE ${name} ${below_support} benchmark::benchmark)
    set_target_properties(${stem} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
    set_property(GLOBAL APPEND PROPERTY FALAJ_BENCHMARKS ${stem})
  endforeach()

  if(FALAJ_FUZZ)
    foreach(fuzzer IN LISTS fuzzers)
      get_filename_component(stem ${fuzzer} NAME_WE)
      add_executable(${stem} ${fuzzer})
      target_link_libraries(${stem} PRIVATE ${name})
      target_compile_options(${stem} PRIVATE -fsanitize=fuzzer-no-link)
      falaj_include_shared(${stem} shared_fuzzed_headers ${fuzzer})
      target_link_options(${stem} PRIVATE -fsanitize=fuzzer)
      set_property(GLOBAL APPEND PROPERTY FALAJ_FUZZERS ${stem})
      set_target_properties(${stem} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
    endforeach()
  endif()
endfunction()
