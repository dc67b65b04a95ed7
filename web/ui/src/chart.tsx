// A line chart over time: drawn by uPlot, and as a table for who does not see it.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { clockTime, dayTime } from "./words";

export interface Curve {
  name: string;
  unit: string;
  colour: string; // a custom property of the style
  dash?: number[];
  values: (number | null)[];
}
/** A time without readings, and why. */
export interface Stretch {
  begin: number; // seconds since 1970
  end: number;
  words: string;
}

const colourOf = (name: string) =>
  getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const kDayAxis = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

/** With seconds where a few minutes are shown, and days where many hours are. */
function axisTimes(plot: uPlot, ticks: number[]): string[] {
  const { min, max } = plot.scales["x"]!;
  const span = (max ?? 0) - (min ?? 0);
  if (span > 2 * 86400) return ticks.map((tick) => kDayAxis.format(tick * 1000));
  return ticks.map((tick) => clockTime(tick).slice(0, span < 1200 ? 8 : 5));
}

interface Window {
  from: number;
  to: number;
  gaps: Stretch[];
}

const kHatch = 7; // CSS pixels between its lines

/** A hatched area for each gap, with its words where they fit: nothing was 0 then. */
function drawGaps(plot: uPlot, gaps: Stretch[]): void {
  const { ctx, bbox } = plot;
  const scale = devicePixelRatio;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.font = `${12 * scale}px system-ui, sans-serif`;
  ctx.textAlign = "center";
  for (const gap of gaps) {
    const left = Math.max(bbox.left, plot.valToPos(gap.begin, "x", true));
    const right = Math.min(bbox.left + bbox.width, plot.valToPos(gap.end, "x", true));
    if (right - left < 1) continue;
    ctx.fillStyle = colourOf("--back");
    ctx.fillRect(left, bbox.top, right - left, bbox.height);
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, bbox.top, right - left, bbox.height);
    ctx.clip();
    ctx.strokeStyle = colourOf("--line");
    ctx.lineWidth = scale;
    ctx.beginPath();
    for (let x = left - bbox.height; x < right; x += kHatch * scale) {
      ctx.moveTo(x, bbox.top + bbox.height);
      ctx.lineTo(x + bbox.height, bbox.top);
    }
    ctx.stroke();
    ctx.restore();
    const wide = ctx.measureText(gap.words).width + 12 * scale;
    if (wide > right - left) continue;
    const middle = (left + right) / 2, y = bbox.top + bbox.height / 2;
    ctx.fillStyle = colourOf("--card");
    ctx.fillRect(middle - wide / 2, y - 13 * scale, wide, 19 * scale);
    ctx.fillStyle = colourOf("--text-2");
    ctx.fillText(gap.words, middle, y);
  }
  ctx.restore();
}

const plainNumber = new Intl.NumberFormat("en", { maximumFractionDigits: 1, useGrouping: false });
const groupedNumber = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const numbersOf = (unit?: string) => (unit === "MHz" ? plainNumber : groupedNumber);

function options(width: number, height: number, curves: Curve[], lowest: number, shown: () => Window,
                 picked: (unix: number) => void): uPlot.Options {
  const text = colourOf("--text-2"), grid = colourOf("--line");
  const axis: uPlot.Axis = { stroke: text, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid } };
  const numbers = numbersOf(curves[0]?.unit);
  return {
    width,
    height,
    padding: [null, 28, null, null], // the last time on the axis is whole
    scales: {
      x: { time: true, range: () => [shown().from, shown().to] },
      y: { range: (_u, _low, high) => [lowest, Math.max((high ?? 0) * 1.08, lowest + 1)] },
    },
    legend: { show: false },
    cursor: { y: false, points: { size: 6 }, sync: { key: "derate" } },
    series: [
      {},
      ...curves.map((curve) => ({
        label: curve.name,
        stroke: colourOf(curve.colour),
        width: 1.5,
        dash: curve.dash,
        spanGaps: false,
        points: { show: false },
      })),
    ],
    axes: [
      { ...axis, values: axisTimes, space: 70 },
      { ...axis, size: 56, values: (_u, ticks) => ticks.map((tick) => numbers.format(tick)) },
    ],
    hooks: {
      drawAxes: [(plot) => drawGaps(plot, shown().gaps)],
      setCursor: [
        (plot) => {
          const left = plot.cursor.left;
          if (left != null && left >= 0 && plot.cursor.event) picked(plot.posToVal(left, "x"));
        },
      ],
    },
  };
}

interface Properties extends Window {
  title: string;
  times: number[];
  curves: Curve[];
  lowest?: number;
  picked: (unix: number) => void;
}

const kHigh = 170;

export function Chart({ title, times, curves, from, to, gaps, lowest = 0, picked }: Properties) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>();
  const shown = useRef<Window>({ from, to, gaps });
  shown.current = { from, to, gaps };
  const newest = useRef({ times, curves });
  newest.current = { times, curves };
  const shape = curves.map((curve) => curve.name).join();
  useEffect(() => {
    const at = place.current!;
    const make = () => {
      const { times, curves } = newest.current;
      plot.current?.destroy();
      plot.current = new uPlot(options(at.clientWidth, kHigh, curves, lowest, () => shown.current, picked), [[]], at);
      plot.current.setData([times, ...curves.map((curve) => curve.values)] as uPlot.AlignedData);
    };
    make();
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", make);
    const resized = new ResizeObserver(() =>
      plot.current?.setSize({ width: at.clientWidth, height: kHigh }));
    resized.observe(at);
    return () => {
      resized.disconnect();
      dark.removeEventListener("change", make);
      plot.current?.destroy();
    };
  }, [shape]);
  useEffect(() => {
    plot.current?.setData([times, ...curves.map((curve) => curve.values)] as uPlot.AlignedData);
  }, [times, curves, from, to]);
  const last = gaps[gaps.length - 1];
  return (
    <figure class="chart">
      <figcaption>
        <b>{title}</b>{" "}
        {curves.map((curve) => (
          <span class="key" key={curve.name}>
            <svg viewBox="0 0 18 6" aria-hidden="true" class={curve.colour.slice(2)}>
              <line x1="0" y1="3" x2="18" y2="3" stroke-width="2" stroke-dasharray={curve.dash?.join(" ")} />
            </svg>{" "}
            {curve.name} ({curve.unit})
          </span>
        ))}
        {last && last.end === to && <span class="key">{last.words}</span>}
      </figcaption>
      <div ref={place} class="plot" aria-hidden="true" />
      <details>
        <summary>{title} as a table</summary>
        <Figures title={title} times={times} curves={curves} />
      </details>
    </figure>
  );
}

const kMostRows = 60;

function Figures({ title, times, curves }: { title: string; times: number[]; curves: Curve[] }) {
  const step = Math.max(1, Math.ceil(times.length / kMostRows));
  const days = times.length > 0 && times[times.length - 1]! - times[0]! > 86400;
  const rows = times.map((_time, i) => i).filter((i) => i % step === 0);
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={`${title}, figures`}>
      <table>
        <thead>
          <tr>
            <th scope="col">time</th>
            {curves.map((curve) => <th scope="col" key={curve.name}>{curve.name} ({curve.unit})</th>)}
          </tr>
        </thead>
        <tbody>
          {rows.map((i) => (
            <tr key={times[i]}>
              <th scope="row">{days ? dayTime(times[i]!) : clockTime(times[i]!)}</th>
              {curves.map((curve) => (
                <td key={curve.name}>{curve.values[i] == null ? "–" : Math.round(curve.values[i]! * 10) / 10}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
