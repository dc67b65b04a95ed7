// A chart with what belongs to each: its title, the values under the pointer or chosen by keys, the
// figures as a table, and its files.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { unknown } from "../words";
import type { Look } from "./scale";

export type Cell = string | number | null | undefined;
export interface TableOf {
  head: string[];
  rows: Cell[][]; // numbers as they are; people see them rounded
}

// --- files ---------------------------------------------------------------------------------------

function save(name: string, content: Blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// As in `derate bill` and `history` (csv_text), a name that a spreadsheet would read as a formula
// gets an apostrophe before it. Numbers are not changed.
const quoted = (cell: Cell) => {
  const name = typeof cell === "string" && /^[=+@\t\r-]/.test(cell);
  const text = cell == null ? "" : (name ? "'" : "") + String(cell);
  return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

export function csvText(table: TableOf): string {
  return [table.head, ...table.rows].map((row) => row.map(quoted).join(",") + "\n").join("");
}

export function saveCsv(name: string, table: TableOf) {
  save(`${name}.csv`, new Blob([csvText(table)], { type: "text/csv" }));
}

/** The drawing alone, with the page's style in it. */
function standalone(svg: SVGSVGElement, title: string): string {
  const copy = svg.cloneNode(true) as SVGSVGElement;
  const { width, height } = svg.viewBox.baseVal;
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", String(width));
  copy.setAttribute("height", String(height));
  copy.removeAttribute("aria-hidden");
  const make = (name: string, text: string) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    node.textContent = text;
    return node;
  };
  const back = make("rect", "");
  back.setAttribute("class", "back");
  back.setAttribute("width", String(width));
  back.setAttribute("height", String(height));
  copy.prepend(make("title", title), make("style", document.querySelector("style")!.textContent!), back);
  return new XMLSerializer().serializeToString(copy);
}

async function savePng(name: string, svg: SVGSVGElement, title: string) {
  const { width, height } = svg.viewBox.baseVal;
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(standalone(svg, title))}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  const fine = 2; // for print
  canvas.width = fine * width;
  canvas.height = fine * height;
  canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((blob) => blob && save(`${name}.png`, blob), "image/png");
}

// --- the table -----------------------------------------------------------------------------------

const shown = (cell: Cell) =>
  cell == null ? unknown : typeof cell === "number" ? cell.toLocaleString("en", { maximumFractionDigits: 2 }) : cell;

export function DataTable({ table, label }: { table: TableOf; label: string }) {
  return (
    <div class="scroll tall" tabIndex={0} role="group" aria-label={label}>
      <table class="dense">
        <thead>
          <tr>{table.head.map((each) => <th scope="col" key={each}>{each}</th>)}</tr>
        </thead>
        <tbody>
          {table.rows.map((row, i) => (
            <tr key={i}>
              {row.map((cell, j) => j === 0
                ? <th scope="row" key={j}>{shown(cell)}</th>
                : <td key={j} class={typeof cell === "string" ? "text" : undefined}>{shown(cell)}</td>)}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

// --- the chart -----------------------------------------------------------------------------------

/** The width that an element has now, of at least `least` pixels. */
export function useWidth(least: number, most: number): [{ current: HTMLDivElement | null }, number] {
  const place = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(most);
  useEffect(() => {
    const see = () => setWidth(Math.min(most, Math.max(least, place.current!.clientWidth)));
    see();
    const resized = new ResizeObserver(see);
    resized.observe(place.current!);
    return () => resized.disconnect();
  }, [least, most]);
  return [place, width];
}

export function Shape({ look, x, y, said, hollow }: { look: Look; x: number; y: number; said?: string; hollow?: boolean }) {
  return <path class={`mark ${look.colour}${hollow ? " hollow" : ""}`} d={look.shape} transform={`translate(${x.toFixed(1)} ${y.toFixed(1)})`} data-said={said} />;
}

export interface KeyEntry {
  label: string;
  look: Look;
}

/** The series' names with their shapes; pressing one hides or shows it where `toggle` is given. */
export function Keys({ entries, hidden, toggle }: { entries: KeyEntry[]; hidden?: ReadonlySet<string>; toggle?: (label: string) => void }) {
  const picture = (look: Look) => <svg viewBox="-7 -7 14 14" aria-hidden="true"><Shape look={look} x={0} y={0} /></svg>;
  return (
    <ul class="keys" aria-label="series">
      {entries.map(({ label, look }) => (
        <li key={label}>
          {toggle
            ? <button type="button" aria-pressed={!hidden?.has(label)} onClick={() => toggle(label)}>{picture(look)}{label}</button>
            : <>{picture(look)}{label}</>}
        </li>
      ))}
    </ul>
  );
}

interface FigureProperties {
  title: string;
  file: string; // the name of its files, without an ending
  table: TableOf;
  width: number;
  height: number;
  note?: ComponentChildren;
  keys?: ComponentChildren;
  children: ComponentChildren; // of the svg; what has data-said is a value
}

interface Tip {
  text: string;
  left: number;
  top: number;
}

const kStepOf: Record<string, number> = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, PageDown: 10, PageUp: -10 };

export function Figure({ title, file, table, width, height, note, keys, children }: FigureProperties) {
  const svg = useRef<SVGSVGElement>(null);
  const chosen = useRef(-1);
  const [tip, setTip] = useState<Tip | null>(null);
  const show = (mark: Element | null) => {
    svg.current!.querySelector(".chosen")?.classList.remove("chosen");
    if (mark === null) return setTip(null);
    mark.classList.add("chosen");
    const box = mark.getBoundingClientRect(), around = svg.current!.parentElement!.getBoundingClientRect();
    setTip({
      text: mark.getAttribute("data-said")!,
      left: Math.min(Math.max(box.x + box.width / 2 - around.x, 110), Math.max(110, around.width - 110)),
      top: box.y - around.y,
    });
  };
  const pointed = (event: PointerEvent) => {
    const mark = (event.target as Element).closest("[data-said]");
    chosen.current = mark === null ? -1 : [...svg.current!.querySelectorAll("[data-said]")].indexOf(mark);
    show(mark);
  };
  const pressed = (event: KeyboardEvent) => {
    const marks = svg.current!.querySelectorAll("[data-said]");
    if (event.key === "Escape") return show(null);
    const step = kStepOf[event.key];
    const last = marks.length - 1;
    if (event.key === "Home") chosen.current = 0;
    else if (event.key === "End") chosen.current = last;
    else if (step !== undefined) chosen.current = Math.min(last, Math.max(0, chosen.current + step));
    else return;
    event.preventDefault();
    show(marks[chosen.current] ?? null);
  };
  return (
    <figure>
      <figcaption>
        <b>{title}</b>
        <span class="files">
          <button type="button" aria-label={`${title} as SVG`} onClick={() => save(`${file}.svg`, new Blob([standalone(svg.current!, title)], { type: "image/svg+xml" }))}>SVG</button>
          <button type="button" aria-label={`${title} as PNG`} onClick={() => void savePng(file, svg.current!, title)}>PNG</button>
          <button type="button" aria-label={`${title} as CSV`} onClick={() => saveCsv(file, table)}>CSV</button>
        </span>
      </figcaption>
      {note && <p>{note}</p>}
      {keys}
      <div class="plot" tabIndex={0} role="group" aria-label={`${title}: the arrow keys go from value to value`}
           onPointerOver={pointed} onPointerLeave={() => show(null)} onKeyDown={pressed} onBlur={() => show(null)}>
        <svg ref={svg} viewBox={`0 0 ${width} ${height}`} width={width} height={height} aria-hidden="true">{children}</svg>
        <div role="status" class="tip" hidden={tip === null}
             style={tip ? { left: `${tip.left}px`, top: `${tip.top}px` } : {}}>{tip?.text}</div>
      </div>
      <details>
        <summary>The figures of this chart as a table</summary>
        <DataTable table={table} label={`figures of ${title.toLowerCase()}`} />
      </details>
    </figure>
  );
}
