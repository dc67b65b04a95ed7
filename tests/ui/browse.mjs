// Uses the page of `derate ui` as a person does, in a real Chromium.
//
//     browse.mjs ADDRESS RESULTS [PICTURES]   the whole; reads "gone", "back", "xid" and "lost" from
//                                             its standard input; RESULTS: of derate lab show --json
//
// Prints what it waits for ("wait gone"), what it measures, and "ok" at the end.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { hostname } from "node:os";
import { fileURLToPath } from "node:url";
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";

const modules = createRequire(fileURLToPath(new URL("../../web/ui/package.json", import.meta.url)));
const { chromium } = modules("playwright-core");
const axe = modules("axe-core").source;
const [address, results, pictures] = process.argv.slice(2);
const base = address.split("#")[0];
const told = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** Says that it is waited for, and waits until it was done. */
async function wait(what) {
  console.log(`wait ${what}`);
  assert.equal((await told.next()).value, what);
}

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
const page = await context.newPage();
const complaints = [];
page.on("pageerror", (error) => complaints.push(error.message));
page.on("console", (message) => {
  // Requests that fail while the daemon is away are said by the page itself.
  if (message.type() === "error" && !message.text().includes("Failed to load resource"))
    complaints.push(message.text());
});

async function picture(name) {
  if (pictures !== undefined) await page.screenshot({ path: `${pictures}/${name}.png` });
}

async function accessible(where) {
  // Not by a script element, which the page's policy refuses.
  await page.evaluate(axe);
  const found = await page.evaluate(() => globalThis.axe.run(document));
  assert.deepEqual(found.violations.map((each) => `${where}: ${each.id}: ${each.nodes.map((n) => n.html).join(" ")}`), []);
}

async function fits(where) {
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(wide <= 0, `${where}: ${wide} pixels wider than the window`);
}

const text = (selector) => page.locator(selector).first().innerText();

// --- it opens, once ------------------------------------------------------------------------------

const begun = performance.now();
await page.goto(address);
await page.waitForSelector("a.tile");
console.log(`first picture after ${Math.round(performance.now() - begun)} ms`);
assert.ok(!page.url().includes(address.split("#")[1]), "the code stays in the address");
const other = await (await browser.newContext()).newPage();
await other.goto(address);
await other.waitForSelector("text=used already");
await other.close();
await page.reload();
await page.waitForSelector("a.tile");
assert.equal(await page.title(), `Fleet · ${hostname()} · Derate`);
assert.equal(await text("header .host"), hostname());
assert.equal(await page.locator("a.tile .tag").allInnerTexts().then((all) => all.join()), "sim,sim,sim");

// --- the card at a glance --------------------------------------------------------------------------

const asks = (path) => page.evaluate(async (path) => {
  const head = { Authorization: `Bearer ${sessionStorage.getItem("derate-token")}` };
  return (await fetch(`/v1/${path}`, { headers: head })).json();
}, path);
await page.waitForFunction(() => document.querySelectorAll("a.tile svg.memory").length === 3, undefined, { timeout: 20_000 });
assert.match(await text("a.tile .mem"), /^memory [\d.]+ of \d+\sGiB$/);
await page.waitForFunction(() => / derate$/.test(document.querySelector("a.tile .whose")?.innerText)); // the simulated job

// --- an address is an answer: in another tab, with its span, its moment and its filters ---------------

{
  const second = await context.newPage();
  await second.goto(`${base}#/gpu/1?span=1h`); // a tab has no session of its own
  await second.waitForSelector("h1:has-text('GPU 1')");
  assert.ok(await second.getByLabel("1 h", { exact: true }).isChecked());
  await second.getByText("6 h", { exact: true }).click();
  await second.waitForFunction(() => location.hash === "#/gpu/1?span=6h");
  const long = new Date(Date.now() - 2 * 86400_000).toISOString().slice(0, 19) + "Z";
  await second.goto(`${base}#/gpu/1?span=1h&at=${long}`);
  await second.waitForSelector("text=nothing was read then");
  await second.getByText("Nothing is kept of that time").getByRole("button", { name: "now" }).click();
  await second.waitForSelector(".plot canvas");
  await second.waitForFunction(() => location.hash === "#/gpu/1?span=1h");
  // The left edge of the window is in it.
  await second.locator('section[aria-labelledby="over-time"] .scrub input').focus();
  await second.keyboard.press("Home");
  await second.waitForFunction(() => location.hash.startsWith("#/gpu/1?span=1h&at="));
  await second.waitForTimeout(500);
  assert.equal(await second.locator(".plot canvas").count(), 4);
  await second.goto(`${base}#/?show=attention`);
  await second.waitForSelector("text=0 of 3 GPUs");
  await second.getByRole("button", { name: "show all" }).click();
  await second.waitForSelector("a.tile");
  await second.goto(`${base}#/nothing/at%all`);
  await second.waitForSelector("text=There is no view 'nothing' here");
  await second.goto(`${base}#/gpu/77`);
  await second.waitForSelector("text=GPU 77 is not here");
  // A phone: a view opens at its top, wherever its tile was.
  await second.setViewportSize({ width: 360, height: 420 });
  await second.goto(`${base}#/`);
  await second.locator("a.tile").last().click();
  await second.waitForSelector(".plot canvas");
  assert.equal(await second.evaluate(() => scrollY), 0);
  await second.close();
}

// --- answers that say nothing, or come from who means harm -------------------------------------------

{
  const odd = await context.newPage();
  let answer = (json) => json;
  let held;
  await odd.route("**/v1/status", async (route) => {
    if (held) return; // it never comes
    await route.fulfill({ json: answer(await (await route.fetch()).json()) });
  });
  const names = ["x\u202egpj.exe", "A".repeat(200), "שלום".repeat(50), "<img src=x onerror=document.title='taken'>", "z" + "\u0336".repeat(99)];
  answer = (json) => {
    const whose = json.gpus[0].attribution;
    whose.tenants = names.map((name, i) => ({
      ...whose.tenants[0], key: String(i), pid: 100 + i, process: name, user: names[(i + 1) % names.length], memory_bytes: (i + 1) * 2 ** 30,
    }));
    json.gpus[0].card = {
      age_seconds: 1, memory_used_bytes: 15 * 2 ** 30, memory_total_bytes: 16 * 2 ** 30, pcie_generation: 3, pcie_lanes: 16, pcie_most_generation: 4,
      pcie_most_lanes: 16, pcie_tx_bytes_per_second: 1.2e9, pcie_rx_bytes_per_second: 3e8, fan_ratio: 0.4, encoder_ratio: 0, decoder_ratio: 0.1,
      ecc_corrected_errors: 12, ecc_uncorrected_errors: 0, xid: 31, xid_text: names[3], xid_unix_seconds: Date.now() / 1000 - 60, xids: 2,
    };
    json.gpus[1].card = { age_seconds: 1, memory_used_bytes: 2 ** 30, memory_total_bytes: 80 * 2 ** 30 };
    json.gpus[2].card = { age_seconds: 1 };
    json.gpus[0].name = json.gpus[0].reason = json.host = names[1];
    return json;
  };
  for (const route of ["gpu/0", "", "processes"]) {
    for (const width of [360, 1280]) {
      await odd.setViewportSize({ width, height: 740 });
      await odd.goto(`${base}#/${route}`);
      await odd.waitForSelector("text=AAAA");
      // A chart follows the width of the window a frame later.
      const fits = await odd.waitForFunction(() => document.documentElement.scrollWidth <= innerWidth, undefined, { timeout: 2000 }).catch(() => null);
      const wide = await odd.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(fits, `names: ${wide} pixels wider than ${width} in "${route}"`);
    }
  }
  await odd.goto(`${base}#/gpu/0`);
  const shown = await odd.locator('section[aria-labelledby="whose"] bdi').allInnerTexts();
  assert.equal(shown.length, 2 * names.length);
  assert.equal(shown.filter((name) => name === "x\ufffdgpj.exe").length, 2);
  assert.ok(!(await odd.title()).includes("taken"));

  // The card: what is reported, and no line for what is not.
  const facts = () => odd.locator("dl.facts.card > div").allInnerTexts();
  const card = (await facts()).join("\n").replaceAll("\u00a0", " ");
  for (const each of ["15 of 16 GiB", "gen 3 x16 of gen 4 x16", "1.2 GB/s sent", "300 MB/s received", "Fan\n40 %", "Encoder\n0 %", "Decoder\n10 %",
    "0 uncorrected, 12 corrected", "31 (<img src=x", "2 since derated opened the GPU"])
    assert.ok(card.includes(each), `${each} is not in: ${card}`);
  assert.match(card, /z[^]*5.0 GiB[^]*<img[^]*4.0 GiB[^]*2.0 GiB\n1 more\n1.0 GiB/); // who holds most of it comes first
  await odd.goto(`${base}#/gpu/1`);
  await odd.waitForSelector("h1:has-text('GPU 1')");
  assert.deepEqual((await facts()).map((each) => each.split("\n")[0]), ["Memory"]);
  await odd.goto(`${base}#/gpu/2`);
  await odd.waitForSelector("h1:has-text('GPU 2')");
  assert.equal(await odd.locator("#card").count(), 0);

  // The processes of all GPUs, sorted and filtered by the address.
  const hers = `${base}#/processes?user=${encodeURIComponent(names[1])}`;
  await odd.goto(`${base}#/processes?gpu=0&sort=memory`);
  await odd.waitForSelector('th[aria-sort="descending"]:has-text("memory")');
  const inRows = () => odd.locator("table.processes tbody th .name").allInnerTexts();
  assert.deepEqual((await inRows()).map((name) => name[0]), ["z", "<", "ש", "A", "x"]);
  const heading = odd.locator("th button:has-text('memory')");
  await heading.focus();
  await odd.keyboard.press("Enter");
  await odd.waitForSelector('th[aria-sort="ascending"]:has-text("memory")');
  assert.deepEqual((await inRows()).map((name) => name[0]), ["x", "A", "ש", "<", "z"]);
  assert.match(odd.url(), /sort=memory&order=reversed/);
  await odd.goto(hers);
  await odd.waitForSelector("text=1 of ");
  assert.deepEqual(await inRows(), ["x\ufffdgpj.exe"]);
  await odd.getByRole("button", { name: "show all" }).click();
  await odd.getByLabel("Find").fill("ONERROR");
  await odd.waitForFunction(() => location.hash === "#/processes?text=ONERROR");
  assert.equal((await inRows()).length, 2); // of a process, and of a user
  await odd.setViewportSize({ width: 360, height: 740 });
  await odd.waitForSelector("ul.processes > li");
  assert.equal(await odd.locator("table.processes").count(), 0);
  await odd.setViewportSize({ width: 1280, height: 800 });

  // Events as derated folds and counts them; a line opens.
  await odd.route("**/v1/events?*", async (route) => {
    const fold = route.request().url().includes("fold=true");
    const begun = Math.floor(Date.now() / 1000) - 3600;
    const one = { id: 900, time_unix_seconds: begun + 60, event: "stuck", severity: "error", message: names[1] };
    const each = Array.from({ length: 24 }, (_, i) => ({ ...one, id: 877 + i, time_unix_seconds: begun + i, gpu: "GPU-1", gpu_index: 1, message: names[i % 4] }));
    await route.fulfill({ json: fold ? { events: [{ ...one, count: 24, first_unix_seconds: begun, gpu_indices: [0, 1] }], total: 3037, warnings: 40, errors: 1450 }
      : { events: [...each, { ...one, event: "lost", id: 899 }], total: 25 } });
  });
  await odd.goto(`${base}#/events`);
  await odd.waitForSelector("text=The 24 newest of 3,037 events: 1,450 errors and 40 warnings.");
  await odd.locator(".events summary").click();
  await odd.waitForFunction(() => document.querySelectorAll(".folded li").length === 24);
  await odd.setViewportSize({ width: 360, height: 740 });
  assert.ok(await odd.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
  await odd.setViewportSize({ width: 1280, height: 800 });
  await odd.goto(`${base}#/gpu/1`);
  await odd.waitForSelector("text=All 3,037 of the last day");

  await odd.goto(`${base}#/gpu/0`);
  await odd.waitForSelector("p.verdict");
  answer = () => ({});
  await odd.waitForSelector(".trouble:has-text('not understood')");
  answer = (json) => json;
  await odd.waitForSelector(".trouble", { state: "detached" });
  held = true; // an agent that is silent: not an error, and no answer
  await odd.waitForSelector(".trouble:has-text('not known'), .trouble:has-text('Nothing is known since')", { timeout: 6000 });
  assert.match(await odd.locator("p.verdict").innerText(), /not known since \d\d:\d\d:\d\d/);
  await odd.close();
}

// --- it lives ------------------------------------------------------------------------------------

const power = await text(".headline > div:nth-child(4) dd");
await page.waitForFunction((before) => {
  const now = document.querySelector(".headline > div:nth-child(4) dd");
  return now !== null && now.textContent !== before;
}, power, { timeout: 20_000 });

// --- by keyboard alone ---------------------------------------------------------------------------

await page.keyboard.press("Tab");
assert.equal(await page.evaluate(() => document.activeElement.className), "skip");
for (let i = 0; i < 20 && !(await page.evaluate(() => document.activeElement.matches("a.tile"))); ++i)
  await page.keyboard.press("Tab");
await page.keyboard.press("Enter");
await page.waitForSelector("h1:has-text('GPU')");
await page.waitForSelector(".plot canvas", { timeout: 20_000 });
await page.locator('section[aria-labelledby="over-time"] .scrub input').focus();
for (let i = 0; i < 8; ++i) await page.keyboard.press("ArrowLeft");
await page.waitForFunction(() => !document.querySelector(".scrub button").disabled);
await page.waitForSelector("#why");

// --- what holds the work back: watched when somebody asks ------------------------------------------

const advice = page.locator('section[aria-labelledby="advice"]');
await advice.getByRole("button", { name: "watch it for a minute" }).click();
await advice.getByText(/kernels ran \d+\s%/).waitFor({ timeout: 15_000 });
await advice.scrollIntoViewIfNeeded();
await picture("advice");
await advice.getByRole("button", { name: "stop watching" }).click();
await advice.getByRole("button", { name: "watch it for a minute" }).waitFor();

// --- an observed GPU leads to who may govern it -------------------------------------------------------

await page.goto(`${base}#/gpu/2`);
await page.getByText("how to have it governed").click();
assert.equal(await page.evaluate(() => document.activeElement.id), "promise");
await page.waitForSelector("code:has-text('derate policy set assure -i 2')");

// --- another promise: told, tried, kept, and what is not kept goes ---------------------------------

const promised = async () => (await asks("forecast?gpu=0")).now_delta_ratio;
const promises = async (delta, within = 10_000) => {
  for (const end = Date.now() + within; Date.now() < end; await page.waitForTimeout(200))
    if (Math.abs((await promised()) - delta) < 1e-6) return;
  assert.fail(`it promises ${await promised()}, not ${delta}`);
};
const slider = page.locator('section[aria-labelledby="promise"] input[type=range]');
const button = (name) => page.getByRole("button", { name });

await page.goto(`${base}#/gpu/0`);
await slider.waitFor({ timeout: 30_000 });
await promises(0.1);
assert.match(await slider.getAttribute("aria-valuetext"), /^may lose 10.%: [\d,]+.MHz, saves /);
const before = await text(".facts.three");
await slider.focus();
for (let i = 0; i < 3; ++i) await page.keyboard.press("ArrowRight");
await page.waitForFunction((before) => document.querySelector(".facts.three").innerText !== before, before);
await promises(0.1);  // moving it changes nothing
await picture("promise");
await button("try it for 30 s").click();
await promises(0.2);
await page.waitForSelector(".trial");
await picture("trial");
await button("back now").click();
await promises(0.1);
await page.waitForSelector(".trial", { state: "detached" });
await slider.waitFor({ timeout: 30_000 });
await button("try it for 30 s").click();
await button("keep it").click();
await page.waitForSelector(".trial", { state: "detached" });
await promises(0.2);
await slider.waitFor({ timeout: 30_000 });
await slider.focus();
await page.keyboard.press("End");
await button("try it for 30 s").click();
await promises(0.3);
await promises(0.2, 45_000);  // nobody has kept it

// --- policies compared, of a file -------------------------------------------------------------------

await page.goto(`${base}#/compare`);
await page.locator("input[type=file]").setInputFiles(results);
await page.waitForSelector("table.compared");
assert.match(await text("table.compared"), /assure/);
await page.locator("input[type=file]").setInputFiles({ name: "odd.json", mimeType: "application/json", buffer: Buffer.from("{}") });
await page.waitForSelector("text=odd.json is no output of derate lab show");
await page.locator("input[type=file]").setInputFiles(results);
await page.waitForSelector("table.compared");
await accessible("compared");
await picture("compared");

// --- everywhere, light and dark ------------------------------------------------------------------

for (const colorScheme of ["light", "dark"]) {
  await page.emulateMedia({ colorScheme });
  for (const [name, route, wanted] of [["fleet", "", "a.tile"], ["gpu", "gpu/0", ".plot canvas"], ["processes", "processes?sort=memory", "table.processes td"],
    ["savings", "savings", "table.savings"], ["events", "events", ".events li"],
    ["training", "jobs", "table.jobs"], ["trials", "jobs/bert", "h1"], ["compare", "compare", "input[type=file]"]]) {
    await page.goto(`${base}#/${route}`);
    await page.waitForSelector(wanted, { timeout: 20_000 });
    await accessible(`${name}, ${colorScheme}`);
    for (const width of [360, 768, 1280, 2560]) {
      await page.setViewportSize({ width, height: width < 500 ? 740 : 800 });
      await page.waitForTimeout(150);
      await fits(`${name} at ${width}`);
      if (name === "processes" && width === 360) await accessible(`${name} as a list, ${colorScheme}`);
      await picture(`${name}-${colorScheme}-${width}`);
    }
    await page.setViewportSize({ width: 1280, height: 800 });
  }
}

// --- the processes of all GPUs, by their memory ------------------------------------------------------

{
  await page.goto(`${base}#/processes?sort=memory`);
  await page.waitForSelector("table.processes td");
  const held = (await asks("status")).gpus.flatMap((gpu) => gpu.attribution.tenants.map((tenant) => tenant.memory_bytes));
  assert.equal(held.length, 2);
  assert.ok(held.every((bytes) => bytes > 0), `memory: ${held}`);
  const shown = await page.locator("table.processes tbody td:nth-child(5)").allInnerTexts();
  assert.equal(shown.length, held.length);
  for (const each of shown) assert.match(each, /^[\d.]+\s[GM]iB$/);
  assert.match(await text(".summary"), /^2 processes of 1 user on 2 GPUs: \d+\sW, [\d.]+\s[GM]iB of memory. \d+\sW more are nobody's.$/);
}

// --- the daemon goes, and comes back -------------------------------------------------------------

/** Nothing that is no more known is shown as well. */
async function nothingGreen() {
  assert.equal(await page.locator("main .good").count(), 0);
  for (const tile of await page.locator("a.tile").allInnerTexts()) assert.match(tile, /not known since \d\d:\d\d:\d\d/);
  assert.match(await text(".headline"), /not known since/);
  assert.match(await text(".headline > div:nth-child(4) dd"), /^– was [\d,]+\sW$/);
}

await page.goto(`${base}#/`);
await page.waitForSelector("a.tile");
await page.waitForSelector("main .good");
await wait("gone");
await page.waitForSelector(".trouble", { timeout: 15_000 });
await nothingGreen();
await accessible("gone");
await picture("gone");
await wait("back");
await page.waitForSelector(".trouble", { state: "detached", timeout: 30_000 });
await page.waitForSelector("a.tile:not(.gone)", { timeout: 30_000 });

// --- an Xid of the card: an event, and the last one of the GPU's view ----------------------------------

await page.goto(`${base}#/gpu/0`);
await page.waitForSelector("#card", { timeout: 20_000 });
assert.match(await text(".facts.card"), /^Memory\n[\d.]+ of \d+\sGiB/);
assert.match(await text(".facts.card .holders"), /derate of \w+\n[\d.]+\s[GM]iB/);
await wait("xid");
await page.waitForSelector(".facts.card div:has-text('Xid'):has-text('31')", { timeout: 30_000 });
await page.waitForSelector("section[aria-labelledby=happened] li.warning:has-text('Xid 31')", { timeout: 30_000 });
await page.goto(`${base}#/gpu/1`);
await page.waitForSelector(".facts.card div:has-text('Xid'):has-text('79')", { timeout: 30_000 });
await accessible("xid");
await picture("xid");

// --- a GPU is lost: no value of it is now's ---------------------------------------------------------

await page.goto(`${base}#/`);
await page.waitForSelector("a.tile");
await wait("lost");
const lost = page.locator("a.tile.bad");
await lost.waitFor({ timeout: 30_000 });
await page.waitForFunction(() => /GPU 1\n[^]*does not answer[^]*last read \d\d:\d\d:\d\d/.test(document.querySelector("a.tile.bad")?.innerText));
assert.match(await text(".headline > div:nth-child(4) dd"), / of 2 of 3 GPUs$/);
await picture("lost");
await lost.click();
await page.waitForSelector("figcaption:has-text('not read since')", { timeout: 40_000 });
assert.equal((await page.locator(".facts dd").first().innerText()).slice(0, 1), "–");
assert.match(await text('section[aria-labelledby="whose"]'), /Not known since .*without a reading/);
assert.match(await text('section[aria-labelledby="promise"]'), /The GPU does not answer/);
assert.match(await text("p.verdict"), /the GPU is lost; Xid 79/);
assert.deepEqual(await page.locator(".facts.card dt").allInnerTexts(), ["Xid"]); // of a card that is lost
await accessible("lost");
await picture("lost-gpu");
await page.goto(`${base}#/processes`);
await page.waitForSelector("text=1 of 3 GPUs is not read: GPU 1.");
assert.deepEqual(await page.locator("table.processes td a").allInnerTexts(), ["GPU 0"]);
await accessible("processes of a lost GPU");

assert.deepEqual(complaints, []);
await browser.close();
console.log("ok");
process.exit(0);
