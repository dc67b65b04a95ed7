// Reads the page of `derate report` as a person does, in a real Chromium.
//
//     read_report.mjs PAGE TWO [PICTURES]   TWO: of two files of results
//
// Prints "ok" at the end.
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { readFileSync } from "node:fs";
import assert from "node:assert/strict";

const modules = createRequire(fileURLToPath(new URL("../../web/ui/package.json", import.meta.url)));
const { chromium } = modules("playwright-core");
const axe = modules("axe-core").source;
const [one, two, pictures] = process.argv.slice(2);

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync"],
});
const complaints = [];

async function opened(file, width, dark = false) {
  const context = await browser.newContext({ viewport: { width, height: 800 }, colorScheme: dark ? "dark" : "light" });
  const page = await context.newPage();
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("console", (message) => message.type() === "error" && complaints.push(message.text()));
  page.on("request", (request) => {
    if (!/^(file|data|blob):/.test(request.url())) complaints.push(`asked for ${request.url()}`);
  });
  await page.goto(`file://${file}`);
  await page.waitForSelector("h1");
  return page;
}

async function saved(page, button) {
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: button, exact: true }).click()]);
  return { name: download.suggestedFilename(), bytes: readFileSync(await download.path()) };
}

// --- each width and colour scheme ----------------------------------------------------------------

for (const [width, dark] of [[360, false], [768, true], [1280, false], [1280, true], [2560, false]]) {
  for (const [name, file] of [["report", one], ["reports", two]]) {
    const page = await opened(file, width, dark);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(wide <= 0, `${name} at ${width}: ${wide} pixels wider than the window`);
    // Not by a script element, which the page's policy refuses.
    await page.evaluate(axe);
    const found = await page.evaluate(() => globalThis.axe.run(document));
    assert.deepEqual(found.violations.map((each) => `${name} at ${width}: ${each.id}: ${each.nodes[0].html}`), []);
    if (pictures !== undefined)
      await page.screenshot({ path: `${pictures}/${name}-${width}${dark ? "-dark" : ""}.png`, fullPage: true });
    await page.context().close();
  }
}

// --- what it says --------------------------------------------------------------------------------

const page = await opened(one, 1280);
assert.match(await page.locator(".sentence").innerText(), /^In simulation, assure (kept|broke its promise of) 90\s% of performance .* energy than max-freq\.$/s);
assert.equal(await page.locator(".numbers > div").count(), 3);
assert.match(await page.locator("tbody").first().innerText(), /assure[\s\S]*geepafs/);

// Which run the figures are of, whether the priors know the applications, and one policy against another.
assert.match(await page.locator(".origin").innerText(), /^Simulated V100-SXM2: 2 applications \(2 by clock sweep\)\. Seed 1\. Run by derate [\d.]+, \d{4}-\d\d-\d\d\. Digests: experiment [\da-f]{16}\.$/);
assert.match(await page.locator("main").innerText(), /The priors of “assure” were made with measurements of these applications: on other work/);
assert.match(await page.locator(".paired").innerText(), /^Job by job, assure against\s+.*geepafs.* of the energy and loses .* of the performance, over 2 applications and 2 jobs\.$/s);
assert.match(await page.locator("tbody th").filter({ hasText: "assure" }).first().innerText(), /†$/);

// Names in the plane lie beside each other, not on one another.
const names = await page.getByRole("group", { name: /^Gain of efficiency against loss/ }).locator("text.strong").evaluateAll((all) =>
  all.map((each) => ({ text: each.textContent, box: each.getBoundingClientRect() })));
assert.ok(names.length >= 4, `${names.length} names`);
for (const [i, a] of names.entries())
  for (const b of names.slice(i + 1)) {
    const over = Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left), down = Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top);
    assert.ok(over <= 0 || down <= 4, `${a.text} lies on ${b.text}`);
  }

// By the keyboard alone: the plot takes the focus, and its values are said one after the other.
const plot = page.getByRole("group", { name: /^Gain of efficiency against loss/ });
await plot.focus();
await page.keyboard.press("End");
const last = await plot.getByRole("status").innerText();
assert.match(last, /^geepafs: [+-][\d.]+\s%, loss /);
await page.keyboard.press("ArrowLeft");
assert.match(await plot.getByRole("status").innerText(), /^assure: /);
await page.keyboard.press("Escape");
assert.equal(await plot.getByRole("status").count(), 0, "what is hidden is said");
await plot.locator("path.mark").first().hover({ force: true });
assert.match(await plot.getByRole("status").innerText(), /^assure: /);

// A policy that is hidden has no dots.
const dots = page.getByRole("group", { name: /^Loss of performance by application/ }).locator("path.mark");
const before = await dots.count();
await page.getByRole("button", { name: "geepafs", exact: true }).click();
assert.equal(await dots.count(), before / 2);

// The moment of a job, by its slider.
const slider = page.getByRole("slider");
await slider.focus();
await page.keyboard.press("Home");
assert.match(await page.locator(".reason").innerText(), /^0\.0 s: SM clock \d+ MHz/);

// --- its files -----------------------------------------------------------------------------------

const chart = "Gain of efficiency against loss of performance";
const csv = await saved(page, `${chart} as CSV`);
assert.match(csv.name, /-gain-and-loss\.csv$/);
assert.match(csv.bytes.toString(), /^policy,"loss, %",[\s\S]*\nassure,\d/);
const svg = await saved(page, `${chart} as SVG`);
assert.match(svg.bytes.toString(), /^<svg [\s\S]*<title>Gain of[\s\S]*<style>[\s\S]*<\/svg>$/);
const png = await saved(page, `${chart} as PNG`);
assert.equal(png.bytes.subarray(1, 4).toString(), "PNG");
assert.ok(png.bytes.length > 10_000, `${png.bytes.length} bytes: nothing is drawn`);

const both = await opened(two, 2000);
const [left, right] = await both.locator("h1").evaluateAll((all) => all.map((each) => each.getBoundingClientRect()));
assert.ok(right.x > left.x + 600 && right.y === left.y, "side by side");

assert.deepEqual(complaints, []);
await browser.close();
console.log("ok");
