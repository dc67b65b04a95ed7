// A line chart over time: drawn by uPlot, and as a table for who does not see it.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { clockTime } from "./words";

export interface Curve {
  name: string;
  unit: string;
  colour: string; // a custom property of the style
  dash?: number[];
  values: (number | null)[];
}

const colourOf = (name: string) =>
  getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** With seconds where a few minutes are shown. */
function axisTimes(plot: uPlot, ticks: number[]): string[] {
  const { min, max } = plot.scales["x"]!;
  const seconds = (max ?? 0) - (min ?? 0) < 1200;
  return ticks.map((tick) => clockTime(tick).slice(0, seconds ? 8 : 5));
}

function options(width: number, height: number, curves: Curve[], lowest: number,
                 picked: (unix: number) => void): uPlot.Options {
  const text = colourOf("--text-2"), grid = colourOf("--line");
  const axis: uPlot.Axis = { stroke: text, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid } };
  return {
    width,
    height,
    scales: { x: { time: true }, y: { range: (_u, _low, high) => [lowest, Math.max(high * 1.08, lowest + 1)] } },
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
      { ...axis, size: 56, values: (_u, ticks) => ticks.map((tick) => tick.toLocaleString("en")) },
    ],
    hooks: {
      setCursor: [
        (plot) => {
          const at = plot.cursor.idx;
          if (at != null && plot.cursor.event) picked(plot.data[0][at]!);
        },
      ],
    },
  };
}

interface Properties {
  title: string;
  times: number[];
  curves: Curve[];
  lowest?: number;
  picked: (unix: number) => void;
}

export function Chart({ title, times, curves, lowest = 0, picked }: Properties) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>();
  const shape = curves.map((curve) => curve.name).join();
  useEffect(() => {
    const at = place.current!;
    const make = () => {
      plot.current?.destroy();
      plot.current = new uPlot(options(at.clientWidth, 170, curves, lowest, picked), [[]], at);
      plot.current.setData([times, ...curves.map((curve) => curve.values)] as uPlot.AlignedData);
    };
    make();
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", make);
    const resized = new ResizeObserver(() =>
      plot.current?.setSize({ width: at.clientWidth, height: 170 }));
    resized.observe(at);
    return () => {
      resized.disconnect();
      dark.removeEventListener("change", make);
      plot.current?.destroy();
    };
  }, [shape]);
  useEffect(() => {
    plot.current?.setData([times, ...curves.map((curve) => curve.values)] as uPlot.AlignedData);
  }, [times, curves]);
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
      </figcaption>
      <div ref={place} class="plot" aria-hidden="true" />
      <details>
        <summary>The figures of {title.toLowerCase()} as a table</summary>
        <Figures title={title} times={times} curves={curves} />
      </details>
    </figure>
  );
}

const kMostRows = 60;

function Figures({ title, times, curves }: { title: string; times: number[]; curves: Curve[] }) {
  const step = Math.max(1, Math.ceil(times.length / kMostRows));
  const rows = times.map((_time, i) => i).filter((i) => i % step === 0);
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={`figures of ${title.toLowerCase()}`}>
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
              <th scope="row">{clockTime(times[i]!)}</th>
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
