#include "draw.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "../passes/calls.h"
#include "../passes/utf8.h"
#include "flow.h"
#include "layout.h"

namespace tailor::tool {
namespace {

// More boxes than this are no picture; what is left out is counted.
constexpr std::size_t most_boxes = 120;

constexpr double title_height = 17, line_height = 14, padding = 10;
// Widths of one character of DejaVu Sans Mono, the widest of the fonts asked for.
constexpr double title_character = 7.83, line_character = 6.63;

constexpr const char* style = R"(<style>
  text { font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #1f2933 }
  .heading { font-size: 17px; font-weight: bold }
  .note { font-size: 12px; fill: #66727f }
  .title { font-size: 13px; font-weight: bold; text-anchor: middle }
  .line { font-size: 11px; fill: #52606d; text-anchor: middle }
  .label { font-size: 10px; font-style: italic; fill: #7b8794; stroke: #ffffff; stroke-width: 3px; paint-order: stroke }
  .middle { text-anchor: middle }
  .op rect { fill: #ffffff; stroke: #9aa5b1 }
  .end rect { fill: #e4e7eb; stroke: #cbd2d9 }
  .linear rect { fill: #e3f0fc; stroke: #3b82c4 }
  .fused rect { fill: #0b7a6b; stroke: #075e52 }
  .fused .title { fill: #ffffff }
  .fused .line { fill: #d2f1eb }
  .helper rect { fill: #eaf7f4; stroke: #5aa79a }
  .control rect { fill: #fafbfc; stroke: #cbd2d9; stroke-dasharray: 4 3 }
  .control .title { font-weight: normal; font-size: 12px; fill: #66727f }
  .control .line { fill: #8a96a3 }
  .arrow { fill: none; stroke: #52606d; stroke-width: 1.5 }
  .aside { stroke: #b8c2cc; stroke-width: 1; stroke-dasharray: 4 3 }
</style>
<defs>
  <marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0.5 L8 4 L0 7.5 z" fill="#52606d"/></marker>
  <marker id="faint" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0.5 L8 4 L0 7.5 z" fill="#b8c2cc"/></marker>
</defs>
)";

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

// Text for XML. Names come from files: what is no UTF-8 or no character that XML allows becomes a question mark.
std::string escape(const std::string& text) {
  std::string safe;
  for (std::size_t i = 0; i < text.size();) {
    const auto [length, code] = character_at(text, i);
    const char c = text[i];
    if (length == 0 || code < 0x20 || code == 0x7F || code == 0xFFFE || code == 0xFFFF)
      safe += '?';
    else if (c == '&')
      safe += "&amp;";
    else if (c == '<')
      safe += "&lt;";
    else if (c == '>')
      safe += "&gt;";
    else if (c == '"')
      safe += "&quot;";
    else
      safe.append(text, i, length);
    i += std::max<std::size_t>(length, 1);
  }
  return safe;
}

std::string written(const char* style_class, double x, double y, const std::string& text) {
  return "<text class=\"" + std::string(style_class) + "\" x=\"" + number(x) + "\" y=\"" + number(y) + "\">" +
         escape(text) + "</text>\n";
}

const char* name(Box::Kind kind) {
  switch (kind) {
    case Box::Kind::end:
      return "end";
    case Box::Kind::linear:
      return "linear";
    case Box::Kind::fused:
      return "fused";
    case Box::Kind::helper:
      return "helper";
    case Box::Kind::control:
      return "control";
    case Box::Kind::op:
      break;
  }
  return "op";
}

Size size_of(const Box& box) {
  double width = static_cast<double>(characters(box.title)) * title_character;
  for (const auto& line : box.lines) width = std::max(width, static_cast<double>(characters(line)) * line_character);
  return {std::max(64.0, width + 2 * padding),
          title_height + line_height * static_cast<double>(box.lines.size()) + padding};
}

std::string draw_box(const Box& box, Point centre, Size size) {
  const double left = centre.x - size.width / 2, top = centre.y - size.height / 2;
  const double corner = box.kind == Box::Kind::end ? size.height / 2 : 5;
  std::string svg = "<g class=\"" + std::string(name(box.kind)) + "\"><rect x=\"" + number(left) + "\" y=\"" +
                    number(top) + "\" width=\"" + number(size.width) + "\" height=\"" + number(size.height) +
                    "\" rx=\"" + number(corner) + "\"/>\n";
  double y = top + padding / 2 + title_height - 4;
  svg += written("title", centre.x, y, box.title);
  for (const auto& line : box.lines) svg += written("line", centre.x, y += line_height, line);
  return svg + "</g>\n";
}

std::string draw_arrow(const std::vector<Point>& points, bool aside) {
  std::string path = "M" + number(points[0].x) + " " + number(points[0].y);
  for (std::size_t i = 1; i < points.size(); ++i) {
    const auto [x0, y0] = points[i - 1];
    const auto [x1, y1] = points[i];
    const double bend = (y1 - y0) / 2;
    if (x0 == x1)
      path += " L" + number(x1) + " " + number(y1);
    else
      path += " C" + number(x0) + " " + number(y0 + bend) + " " + number(x1) + " " + number(y1 - bend) + " " +
              number(x1) + " " + number(y1);
  }
  return "<path class=\"arrow" + std::string(aside ? " aside" : "") + "\" marker-end=\"url(#" +
         (aside ? "faint" : "tip") + ")\" d=\"" + path + "\"/>\n";
}

struct Panel {
  std::string svg;
  Size size;
};

std::string counted(std::size_t n, const char* thing) { return std::to_string(n) + " " + thing + (n == 1 ? "" : "s"); }

Panel panel(const torch::jit::Module& module, const std::string& method, const std::string& heading) {
  // As the pass inlines: torch's Inline takes of each callee what its executor has made of it, where that has run.
  auto graph = inlined_copy(*torch::jit::tryToGraphFunction(module.get_method(method).function()));
  const auto flow = flow_of(graph, most_boxes);
  std::vector<Size> sizes;
  for (const auto& box : flow.boxes) sizes.push_back(size_of(box));
  const auto layout = lay_out(flow, sizes);

  std::string note = counted(flow.ops, "op");
  if (flow.hidden > 0) note += ", the last " + std::to_string(flow.hidden) + " not drawn";
  constexpr double header = 62;
  const double wanted = static_cast<double>(std::max(characters(heading) * 3 / 2, characters(note))) * 7.3;
  Panel result{"", {std::max(layout.size.width, wanted), layout.size.height + header}};
  result.svg = written("heading", 0, 17, heading) + written("note", 0, 37, note);

  const double shift = (result.size.width - layout.size.width) / 2;
  result.svg += "<g transform=\"translate(" + number(shift) + " " + number(header) + ")\">\n";
  std::string labels;
  std::vector<bool> labelled(flow.boxes.size(), false);
  std::vector<int> readers(flow.boxes.size(), 0);
  for (const auto& arrow : flow.arrows)
    if (flow.boxes[arrow.to].kind != Box::Kind::control) ++readers[arrow.from];
  for (std::size_t i = 0; i < flow.arrows.size(); ++i) {
    const auto& arrow = flow.arrows[i];
    const auto& points = layout.arrows[i];
    const bool aside =
        flow.boxes[arrow.to].kind == Box::Kind::control || flow.boxes[arrow.from].kind == Box::Kind::control;
    result.svg += draw_arrow(points, aside);
    if (arrow.label.empty() || labelled[arrow.from] || flow.boxes[arrow.from].kind == Box::Kind::end) continue;
    labelled[arrow.from] = true;
    // Beside a single arrow; between those that part.
    if (readers[arrow.from] > 1)
      labels += written("label middle", points[0].x, points[0].y + 24, shorten(arrow.label, 10));
    else
      labels += written("label", points[0].x + 7, points[0].y + 14, shorten(arrow.label, 24));
  }
  result.svg += labels;
  for (std::size_t i = 0; i < flow.boxes.size(); ++i) result.svg += draw_box(flow.boxes[i], layout.boxes[i], sizes[i]);
  result.svg += "</g>\n";
  return result;
}

std::string class_name(const torch::jit::Module& module) {
  const auto type = module.type()->name();
  return type ? type->name() : "module";
}

// `forward`, or where a module has none, what it has instead.
std::vector<std::string> drawn_methods(const torch::jit::Module& module) {
  constexpr std::size_t most_methods = 8;
  if (module.find_method("forward")) return {"forward"};
  std::vector<std::string> names;
  for (const auto& method : module.get_methods())
    if (!method.name().starts_with("__") && names.size() < most_methods) names.push_back(method.name());
  std::sort(names.begin(), names.end());
  return names;
}

Panel no_methods(const std::string& heading) {
  const std::string note = "a module without methods";
  return {written("heading", 0, 17, heading) + written("note", 0, 37, note),
          {static_cast<double>(std::max(characters(heading) * 3 / 2, characters(note))) * 7.3, 62}};
}

}  // namespace

std::string draw(const torch::jit::Module& before, const torch::jit::Module* after) {
  constexpr double margin = 28, between = 64;
  std::vector<Panel> panels;
  for (const std::string& method : drawn_methods(before)) {
    const std::string part = method == "forward" ? "" : "." + method;
    panels.push_back(panel(before, method, class_name(before) + part + (after ? ", before" : "")));
    if (after) panels.push_back(panel(*after, method, "after"));
  }
  if (panels.empty()) panels.push_back(no_methods(class_name(before)));

  double width = margin, height = 0;
  for (const auto& one : panels) height = std::max(height, one.size.height + 2 * margin);
  std::string body;
  for (const auto& one : panels) {
    if (width > margin) {  // a line as long as the longest panel
      body += "<path d=\"M" + number(width - between / 2) + " " + number(margin) + " V" + number(height - margin) +
              "\" stroke=\"#e4e7eb\"/>\n";
    }
    body += "<g transform=\"translate(" + number(width) + " " + number(margin) + ")\">\n" + one.svg + "</g>\n";
    width += one.size.width + between;
  }
  width += margin - between;
  return R"(<svg xmlns="http://www.w3.org/2000/svg" width=")" + number(width) + R"(" height=")" + number(height) +
         R"(" viewBox="0 0 )" + number(width) + " " + number(height) + "\">\n" + style +
         "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n" + body + "</svg>\n";
}

}  // namespace tailor::tool
