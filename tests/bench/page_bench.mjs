// Measures the page of `derate ui` in a real Chromium; page_bench.py begins what it looks at.
//
//     page_bench.mjs ADDRESS SECONDS
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { readFileSync, readdirSync } from "node:fs";
import { Buffer } from "node:buffer";

const modules = createRequire(fileURLToPath(new URL("../../web/ui/package.json", import.meta.url)));
const { chromium } = modules("playwright-core");
const [address, seconds] = process.argv.slice(2);
const base = address.split("#")[0];

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM,
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
const page = await (await browser.newContext({ viewport: { width: 1280, height: 800 } })).newPage();

const ordered = (values) => [...values].sort((a, b) => a - b);
const quantile = (values, q) => ordered(values)[Math.min(values.length - 1, Math.floor(q * values.length))];
const shown = (values, unit) =>
  `median ${quantile(values, 0.5).toFixed(1)}, 95 % below ${quantile(values, 0.95).toFixed(1)}, most ${Math.max(...values).toFixed(1)} ${unit}`;

// --- the browser's processor time ------------------------------------------------------------------

/** Seconds of all of this browser's processes. */
function browserSeconds() {
  const parents = new Map(), spent = new Map();
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name)))
    try {
      const fields = readFileSync(`/proc/${pid}/stat`, "utf8").replace(/^.*\) /s, "").split(" ");
      parents.set(pid, fields[1]);
      spent.set(pid, (Number(fields[11]) + Number(fields[12])) / 100);
    } catch {
      // It has ended.
    }
  const own = (pid) => pid !== undefined && (parents.get(pid) === String(process.pid) || own(parents.get(pid)));
  return [...spent].filter(([pid]) => own(pid)).reduce((sum, [, each]) => sum + each, 0);
}

async function cost(what) {
  await page.waitForTimeout(5000);
  const before = browserSeconds(), begun = performance.now();
  await page.waitForTimeout(Number(seconds) * 1000);
  const took = (performance.now() - begun) / 1000;
  console.log(`${what}: ${(100 * (browserSeconds() - before) / took).toFixed(1)} % of a core in ${took.toFixed(0)} s`);
}

await page.goto("about:blank");
await cost("a blank page");

// --- the first picture ---------------------------------------------------------------------------

const opened = [];
for (let i = 0; i < 11; ++i) {
  const begun = performance.now();
  if (i === 0) await page.goto(address);
  else await page.reload();
  await page.waitForFunction(() => document.querySelectorAll("a.tile").length >= 1);
  opened.push(performance.now() - begun);
}
const tiles = await page.locator("a.tile").count();
console.log(`first picture, ${tiles} GPUs: the first time ${opened[0].toFixed(0)} ms; then ${shown(opened.slice(1), "ms")}`);

await cost(`the fleet at 1 Hz, 1280x800, ${tiles} GPUs`);

// --- main-thread time a frame while a day is scrubbed ------------------------------------------------

/** What the daemon has told, stretched to a day of 600 points. */
async function day(route) {
  const told = await (await route.fetch()).json();
  const [first] = told.series;
  if (first === undefined) return route.fulfill({ json: told }); // nothing is kept yet
  const step = 144, points = 600, end = Math.floor(Date.now() / 1000 / step) * step;
  const long = {
    ...told, from_unix_seconds: end - points * step, to_unix_seconds: end, step_seconds: step, series: [{ ...first }],
  };
  for (const [name, value] of Object.entries(first))
    if (Array.isArray(value))
      long.series[0][name] = Array.from({ length: points }, (_, i) =>
        name === "begin_unix_seconds" ? end - (points - i) * step
          : value[i % value.length] === null ? null : value[i % value.length] * (1 + 0.1 * Math.sin(i / 7)));
  await route.fulfill({ body: Buffer.from(JSON.stringify(long)), contentType: "application/json" });
}

/** Of a trace's main thread, ms of work up to the end of each frame since the one before. */
function frames(trace) {
  const { traceEvents } = JSON.parse(trace);
  const threads = new Map();
  for (const event of traceEvents) {
    const thread = `${event.pid} ${event.tid}`;
    if (!threads.has(thread)) threads.set(thread, { tasks: [], frames: [] });
    if (event.ph === "X" && event.name === "RunTask") threads.get(thread).tasks.push(event);
    if (event.name === "ProxyMain::BeginMainFrame") threads.get(thread).frames.push(event.ts);
  }
  const main = [...threads.values()].sort((a, b) => b.frames.length - a.frames.length)[0];
  const starts = ordered(main.frames), out = [];
  let spent = 0, next = 0;
  for (const task of main.tasks.sort((a, b) => a.ts - b.ts)) {
    spent += task.dur / 1000;
    if (next < starts.length && starts[next] < task.ts + task.dur) {
      out.push(spent);
      spent = 0;
      while (next < starts.length && starts[next] < task.ts + task.dur) ++next;
    }
  }
  return out.slice(1);  // the first has what went before
}

await page.route("**/v1/history?*", day);
await page.goto(`${base}#/gpu/0`);
await page.getByText("24 h").click();
await page.waitForSelector(".plot canvas");
await page.waitForTimeout(2000);
const scrub = page.locator('section[aria-labelledby="over-time"] .scrub input');
await scrub.scrollIntoViewIfNeeded();

async function traced(what, moves) {
  await browser.startTracing(page, { categories: ["devtools.timeline", "disabled-by-default-devtools.timeline", "cc"] });
  const begun = performance.now();
  let count = 0;
  for (; performance.now() - begun < 10_000; ++count) {
    await moves(count);
    await page.waitForTimeout(8);
  }
  const of = frames((await browser.stopTracing()).toString());
  console.log(`${what}: ${count} moves, ${of.length} frames: ${shown(of, "ms a frame")}`);
}

const box = await scrub.boundingBox();
const there = (i) => 0.5 + 0.45 * Math.sin(i / 40);
await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
await page.mouse.down();
await traced("scrubbing with the slider", (i) => page.mouse.move(box.x + box.width * there(i), box.y + box.height / 2));
await page.mouse.up();
const plot = page.locator(".plot").first();
await plot.scrollIntoViewIfNeeded();
const chart = await plot.boundingBox();
await traced("scrubbing over a chart", (i) => page.mouse.move(chart.x + 60 + (chart.width - 70) * there(i), chart.y + 80));
await scrub.focus();
await traced("scrubbing by keyboard", (i) => page.keyboard.press(i % 200 < 100 ? "ArrowLeft" : "ArrowRight"));
await browser.close();
