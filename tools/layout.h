// Where the boxes of a picture go: in ranks from top to bottom, each box below everything that it reads, long arrows led
// around the boxes between (Sugiyama's method, small).
#pragma once
#include <vector>

#include "flow.h"

namespace tailor::tool {

struct Point {
  double x, y;
};

struct Size {
  double width, height;
};

struct Layout {
  std::vector<Point> boxes;                // centres, in the order of Flow::boxes
  std::vector<std::vector<Point>> arrows;  // from box to box, through the points between, in the order of Flow::arrows
  Size size;
};

Layout lay_out(const Flow& flow, const std::vector<Size>& sizes);

}  // namespace tailor::tool
