// SPDX-License-Identifier: Apache-2.0
#include "cli/plot_png.h"

#include <dlfcn.h>

#include <memory>

#include "foundation/base/error.h"

namespace falaj::cli {
namespace {

// librsvg and what it brings (cairo, pango, GLib) would double the time that every `falaj` command takes to start, so
// it is opened when a PNG is asked for. These are the few calls of their C interfaces that drawing needs; dlsym on
// librsvg also finds the symbols of the libraries it depends on.
struct Rectangle {
  double x, y, width, height;
};
using WritePart = int (*)(void* closure, const unsigned char* data, unsigned size);

class Renderer {
 public:
  Renderer() : library_(::dlopen("librsvg-2.so.2", RTLD_NOW | RTLD_LOCAL)) {
    if (!library_)
      throw Error(
          Code::unavailable,
          "PNG needs the library librsvg-2.so.2 (Debian package librsvg2-2); install it, or write an .svg file");
    find(read, "rsvg_handle_new_from_data");
    find(size_of, "rsvg_handle_get_intrinsic_size_in_pixels");
    find(draw, "rsvg_handle_render_document");
    find(unref, "g_object_unref");
    find(new_surface, "cairo_image_surface_create");
    find(free_surface, "cairo_surface_destroy");
    find(new_context, "cairo_create");
    find(free_context, "cairo_destroy");
    find(write_png, "cairo_surface_write_to_png_stream");
  }

  void* (*read)(const unsigned char* data, std::size_t size, void** error) = nullptr;
  int (*size_of)(void* image, double* width, double* height) = nullptr;
  int (*draw)(void* image, void* context, const Rectangle* viewport, void** error) = nullptr;
  void (*unref)(void* image) = nullptr;
  void* (*new_surface)(int format, int width, int height) = nullptr;
  void (*free_surface)(void* surface) = nullptr;
  void* (*new_context)(void* surface) = nullptr;
  void (*free_context)(void* context) = nullptr;
  int (*write_png)(void* surface, WritePart write, void* closure) = nullptr;

 private:
  template <class F>
  void find(F*& function, const char* name) {
    function = reinterpret_cast<F*>(::dlsym(library_, name));
    if (!function) throw Error(Code::unavailable, std::string("librsvg-2.so.2 has no ") + name);
  }
  void* library_;  // stays open: its libraries register types that must not go away
};

constexpr int kArgb32 = 0;    // CAIRO_FORMAT_ARGB32
constexpr double kScale = 2;  // pixels of the PNG for each of the SVG's: sharp on today's screens

}  // namespace

std::string svg_to_png(std::string_view svg) {
  static const Renderer lib;
  const auto owned = [](void* thing, void (*free)(void*)) {
    return std::unique_ptr<void, void (*)(void*)>(thing, free);
  };
  const auto image =
      owned(lib.read(reinterpret_cast<const unsigned char*>(svg.data()), svg.size(), nullptr), lib.unref);
  double width = 0, height = 0;
  if (!image || !lib.size_of(image.get(), &width, &height))
    throw Error(Code::invalid, "the drawing is not an SVG image with a size");
  const Rectangle whole{0, 0, width * kScale, height * kScale};
  const auto surface =
      owned(lib.new_surface(kArgb32, static_cast<int>(whole.width), static_cast<int>(whole.height)), lib.free_surface);
  const auto context = owned(lib.new_context(surface.get()), lib.free_context);
  std::string png;
  const WritePart append = [](void* closure, const unsigned char* data, unsigned size) {
    static_cast<std::string*>(closure)->append(reinterpret_cast<const char*>(data), size);
    return 0;
  };
  if (!lib.draw(image.get(), context.get(), &whole, nullptr) || lib.write_png(surface.get(), append, &png) != 0)
    throw Error(Code::internal, "librsvg could not draw the chart");
  return png;
}

}  // namespace falaj::cli
