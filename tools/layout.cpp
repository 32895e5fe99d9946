#include "layout.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>

namespace tailor::tool {
namespace {

constexpr double rank_gap = 34, box_gap = 26, lane_width = 14;

// A box, or the place where an arrow passes through a rank.
struct Item {
  std::size_t rank;
  double width;
  bool lane;
  double x = 0;
};

struct Link {
  std::size_t above, below;
  double weight;  // how much it wants to be straight
};

class Sugiyama {
 public:
  Sugiyama(const Flow& flow, const std::vector<Size>& sizes) : flow_(flow), sizes_(sizes) {}

  Layout run() {
    assign_ranks();
    make_lanes();
    order_ranks();
    place();
    return result();
  }

 private:
  void assign_ranks() {
    std::vector<std::size_t> rank(flow_.boxes.size(), 0);
    // Arrows are sorted by the box that they lead to, and boxes run in order: one sweep is enough.
    for (const auto& arrow : flow_.arrows) rank[arrow.to] = std::max(rank[arrow.to], rank[arrow.from] + 1);
    // What reads no tensor stands beside its neighbour in the program.
    std::vector<bool> reads(rank.size(), false);
    for (const auto& arrow : flow_.arrows) reads[arrow.to] = true;
    for (std::size_t i = 1; i < rank.size(); ++i)
      if (!reads[i] && flow_.boxes[i].kind == Box::Kind::control) rank[i] = rank[i - 1];
    const auto last = rank.empty() ? 0 : *std::max_element(rank.begin(), rank.end());
    if (!rank.empty()) rank.back() = last;  // the output
    for (std::size_t i = 0; i < rank.size(); ++i) items_.push_back({rank[i], sizes_[i].width, false});
    ranks_.resize(last + 1);
  }

  void make_lanes() {
    for (const auto& arrow : flow_.arrows) {
      const bool side = flow_.boxes[arrow.to].kind == Box::Kind::control;
      std::vector<std::size_t> path{arrow.from};
      for (auto rank = items_[arrow.from].rank + 1; rank < items_[arrow.to].rank; ++rank) {
        path.push_back(items_.size());
        items_.push_back({rank, lane_width, true});
      }
      path.push_back(arrow.to);
      for (std::size_t i = 0; i + 1 < path.size(); ++i) {
        const bool inner = items_[path[i]].lane && items_[path[i + 1]].lane;
        links_.push_back({path[i], path[i + 1], (side ? 0.01 : 1.0) * (inner ? 8 : 1)});
      }
      paths_.push_back(std::move(path));
    }
    above_.resize(items_.size());
    below_.resize(items_.size());
    for (std::size_t i = 0; i < links_.size(); ++i) {
      above_[links_[i].below].push_back(i);
      below_[links_[i].above].push_back(i);
    }
    for (std::size_t i = 0; i < items_.size(); ++i) ranks_[items_[i].rank].push_back(i);
  }

  // Fewer crossings: each item goes to the mean position of its neighbours, rank by rank, down and up.
  void order_ranks() {
    std::vector<double> position(items_.size());
    const auto number = [&](const std::vector<std::size_t>& rank) {
      for (std::size_t i = 0; i < rank.size(); ++i)
        position[rank[i]] = static_cast<double>(i) + 0.5 - 0.5 * static_cast<double>(rank.size());
    };
    for (const auto& rank : ranks_) number(rank);
    for (int sweep = 0; sweep < 8; ++sweep) {
      const bool down = sweep % 2 == 0;
      for (std::size_t k = 0; k < ranks_.size(); ++k) {
        auto& rank = ranks_[down ? k : ranks_.size() - 1 - k];
        std::vector<std::pair<double, std::size_t>> keyed;
        for (auto item : rank) keyed.emplace_back(mean(item, down, position), item);
        std::stable_sort(keyed.begin(), keyed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
        for (std::size_t i = 0; i < rank.size(); ++i) rank[i] = keyed[i].second;
        number(rank);
      }
    }
  }

  // The weighted mean of `position` over the neighbours on one side; its own where there are none.
  double mean(std::size_t item, bool look_up, const std::vector<double>& position) const {
    double sum = 0, weights = 0;
    for (auto i : look_up ? above_[item] : below_[item]) {
      const auto& link = links_[i];
      sum += link.weight * position[look_up ? link.above : link.below];
      weights += link.weight;
    }
    return weights == 0 ? position[item] : sum / weights;
  }

  void place() {
    for (const auto& rank : ranks_) {
      double x = 0;
      for (auto item : rank) {
        items_[item].x = x + items_[item].width / 2;
        x += items_[item].width + box_gap;
      }
      for (auto item : rank) items_[item].x -= (x - box_gap) / 2;
    }
    for (int sweep = 0; sweep < 24; ++sweep)
      for (std::size_t k = 0; k < ranks_.size(); ++k) pull(ranks_[sweep % 2 == 0 ? k : ranks_.size() - 1 - k]);
  }

  // Moves the items of a rank as near to where their neighbours want them as their widths and order allow: least squares
  // under minimum distances, by pooling neighbours that would overlap.
  void pull(const std::vector<std::size_t>& rank) {
    struct Pool {
      double sum, weight;
      std::size_t count;
      double wanted() const { return sum / weight; }
    };
    std::vector<double> offset(rank.size(), 0);
    std::vector<Pool> pools;
    for (std::size_t i = 0; i < rank.size(); ++i) {
      if (i > 0) offset[i] = offset[i - 1] + (items_[rank[i - 1]].width + items_[rank[i]].width) / 2 + box_gap;
      double sum = 0, weight = 0;
      const auto neighbours = [&](const std::vector<std::size_t>& links, bool up) {
        for (auto l : links) {
          sum += links_[l].weight * items_[up ? links_[l].above : links_[l].below].x;
          weight += links_[l].weight;
        }
      };
      neighbours(above_[rank[i]], true);
      neighbours(below_[rank[i]], false);
      if (weight == 0) {
        sum = 0.001 * items_[rank[i]].x;
        weight = 0.001;
      }
      pools.push_back({sum - weight * offset[i], weight, 1});
      while (pools.size() > 1 && pools[pools.size() - 2].wanted() > pools.back().wanted()) {
        const auto last = pools.back();
        pools.pop_back();
        pools.back().sum += last.sum;
        pools.back().weight += last.weight;
        pools.back().count += last.count;
      }
    }
    std::size_t i = 0;
    for (const auto& pool : pools)
      for (std::size_t n = 0; n < pool.count; ++n, ++i) items_[rank[i]].x = pool.wanted() + offset[i];
  }

  Layout result() const {
    Layout layout;
    double left = 0, right = 0;
    for (const auto& item : items_) {
      left = std::min(left, item.x - item.width / 2);
      right = std::max(right, item.x + item.width / 2);
    }
    std::vector<double> top(ranks_.size()), height(ranks_.size(), 0);
    for (std::size_t i = 0; i < sizes_.size(); ++i)
      height[items_[i].rank] = std::max(height[items_[i].rank], sizes_[i].height);
    double y = 0;
    for (std::size_t k = 0; k < ranks_.size(); ++k) {
      top[k] = y;
      y += height[k] + rank_gap;
    }
    layout.size = {right - left, std::max(0.0, y - rank_gap)};
    const auto middle = [&](std::size_t item) {
      return Point{items_[item].x - left, top[items_[item].rank] + height[items_[item].rank] / 2};
    };
    for (std::size_t i = 0; i < sizes_.size(); ++i) layout.boxes.push_back(middle(i));
    for (const auto& path : paths_) layout.arrows.push_back(route(path, middle, top, height));
    return layout;
  }

  template <class Middle>
  std::vector<Point> route(const std::vector<std::size_t>& path, Middle middle, const std::vector<double>& top,
                           const std::vector<double>& height) const {
    const auto from = middle(path.front()), to = middle(path.back());
    std::vector<Point> points{{from.x, from.y + sizes_[path.front()].height / 2}};
    for (std::size_t i = 1; i + 1 < path.size(); ++i) {
      const auto rank = items_[path[i]].rank;
      points.push_back({middle(path[i]).x, top[rank]});
      points.push_back({middle(path[i]).x, top[rank] + height[rank]});
    }
    points.push_back({to.x + port(path), to.y - sizes_[path.back()].height / 2});
    return points;
  }

  // Arrows into one box arrive side by side, in the order in which they come.
  double port(const std::vector<std::size_t>& path) const {
    const auto& incoming = above_[path.back()];
    const double x = items_[path[path.size() - 2]].x;
    double before = 0, count = static_cast<double>(incoming.size());
    for (auto i : incoming) {
      const auto other = links_[i].above;
      if (items_[other].x < x || (items_[other].x == x && other < path[path.size() - 2])) ++before;
    }
    const double step = std::min(28.0, items_[path.back()].width / (count + 1));
    return (before - (count - 1) / 2) * step;
  }

  const Flow& flow_;
  const std::vector<Size>& sizes_;
  std::vector<Item> items_;
  std::vector<Link> links_;
  std::vector<std::vector<std::size_t>> ranks_, above_, below_, paths_;
};

}  // namespace

Layout lay_out(const Flow& flow, const std::vector<Size>& sizes) { return Sugiyama(flow, sizes).run(); }

}  // namespace tailor::tool
