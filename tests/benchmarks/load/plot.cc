#include "tests/benchmarks/load/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "model/base/errors.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace tlm::bench {
namespace {

constexpr std::string_view kStyle = R"(set grid
set key outside top center horizontal
set offsets graph 0, graph 0, graph 0.05, graph 0
set lmargin 10
set rmargin 4
set style line 1 lc rgb '#1f77b4' lw 2 pt 7 ps 0.7
set style line 2 lc rgb '#1f77b4' lw 2 pt 7 ps 0.7 dt 2
set style line 3 lc rgb '#d62728' lw 2 pt 5 ps 0.7
set style line 4 lc rgb '#d62728' lw 2 pt 5 ps 0.7 dt 2
set style line 5 lc rgb '#2ca02c' lw 2 pt 9 ps 0.8
set style line 6 lc rgb '#c0c0c0' lw 8 pt 7 ps 1.6
set logscale x
set xrange [XLOW:XHIGH]
set format y '%g'
)";

constexpr std::string_view kPictures = R"(set logscale y
set ylabel 'milliseconds'
set xlabel ''
plot $DATA using 1:2 with linespoints ls 1 title 'first token p50', \
     $DATA using 1:3 with linespoints ls 2 title 'first token p99', \
     $DATA using 1:4 with linespoints ls 3 title 'inter-token p50', \
     $DATA using 1:5 with linespoints ls 4 title 'inter-token p99'
unset logscale y
set yrange [0:*]
set ylabel 'requests per second'
set xlabel XLABEL
plot $DATA using 1:7 with linespoints ls 6 title 'completed', \
     $DATA using 1:6 with linespoints ls 5 title 'goodput: completed in time'
unset multiplot
)";

absl::StatusOr<std::string_view> TerminalFor(std::string_view path) {
  if (path.ends_with(".svg")) return "svg size 900,700 dynamic background rgb 'white'";
  if (path.ends_with(".png")) return "pngcairo size 900,700 background rgb 'white'";
  return InvalidArgument("{}: plots are .svg or .png", path);
}

// gnuplot doubles a quote within '...'.
std::string Quoted(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) quoted.append(c == '\'' ? 2 : 1, c == '\n' ? ' ' : c);
  return quoted + "'";
}

std::string Cell(const Summary& summary, double seconds) {
  return summary.count == 0 ? "NaN" : fmt::format("{:.6g}", 1e3 * seconds);
}

// The points of the open loop or, without any, of the closed one: loads of both do not fit on one
// axis.
std::vector<PointMetrics> OnOneAxis(const std::vector<PointMetrics>& points) {
  std::vector<PointMetrics> chosen;
  std::copy_if(points.begin(), points.end(), std::back_inserter(chosen),
               [](const PointMetrics& m) { return m.point.loop == Loop::kOpen; });
  if (chosen.empty()) chosen = points;
  std::sort(chosen.begin(), chosen.end(), [](const PointMetrics& a, const PointMetrics& b) {
    return a.point.load < b.point.load;
  });
  return chosen;
}

std::string DataOf(const std::vector<PointMetrics>& points) {
  std::string data;
  for (const PointMetrics& m : points) {
    data += fmt::format("{} {} {} {} {} {} {}\n", m.point.load, Cell(m.ttft, m.ttft.p50),
                        Cell(m.ttft, m.ttft.p99), Cell(m.inter_token, m.inter_token.p50),
                        Cell(m.inter_token, m.inter_token.p99), m.good_per_second,
                        m.completed_per_second);
  }
  return data;
}

// 1, 2 and 5 of every decade of the loads.
std::string TicsOf(const std::vector<PointMetrics>& points) {
  std::string tics;
  const double last = 10 * points.back().point.load;
  for (double decade = std::pow(10, std::floor(std::log10(points.front().point.load)));
       decade <= last; decade *= 10) {
    for (const int digit : {1, 2, 5}) {
      tics +=
          fmt::format("{}\"{:g}\" {:g}", tics.empty() ? "" : ", ", digit * decade, digit * decade);
    }
  }
  return tics;
}

std::string ScriptFor(const std::vector<PointMetrics>& points, std::string_view terminal,
                      const std::string& title, const std::string& path) {
  const bool closed = points.front().point.loop == Loop::kClosed;
  return fmt::format(
      "set terminal {}\nset output {}\n$DATA << EOD\n{}EOD\nXLABEL = '{}'\n"
      "XLOW = {}\nXHIGH = {}\nset xtics ({})\n{}"
      "set multiplot layout 2,1 title {} noenhanced\n{}",
      terminal, Quoted(path), DataOf(points),
      closed ? "callers (closed loop)" : "requests offered per second (open loop)",
      0.9 * points.front().point.load, 1.1 * points.back().point.load, TicsOf(points), kStyle,
      Quoted(title), kPictures);
}

absl::Status RunGnuplot(const std::string& script) {
  const TempDir directory;
  Process gnuplot({"gnuplot", directory.Write("plot.gp", script)});
  const int status = *gnuplot.Wait(absl::InfiniteDuration());
  if (status == 0) return absl::OkStatus();
  return FailedPrecondition("gnuplot ended with status {} (is it installed?): {}", status,
                            gnuplot.output());
}

}  // namespace

absl::Status PlotLoadCurve(const std::vector<PointMetrics>& points, const std::string& title,
                           const std::string& path) {
  TLM_ASSIGN_OR_RETURN(const std::string_view terminal, TerminalFor(path));
  return RunGnuplot(ScriptFor(OnOneAxis(points), terminal, title, path));
}

}  // namespace tlm::bench
