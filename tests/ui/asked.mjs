// How often useAsked (web/ui/src/live.ts) asks while the page comes to the front again and again, in
// a real Chromium, of answers that take their time. Prints "ok" at the end.
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import assert from "node:assert/strict";

const ui = fileURLToPath(new URL("../../web/ui/", import.meta.url));
const modules = createRequire(ui + "package.json");
const { chromium } = modules("playwright-core");
const { build } = modules("esbuild");

const source = `
  import { h, render } from "preact";
  import { useAsked } from "./src/live";
  function Shown() {
    const { value } = useAsked("status", 1000);
    return h("p", null, value === undefined ? "" : value.number);
  }
  render(h(Shown, null), document.body);
`;
const bundled = await build({
  stdin: { contents: source, resolveDir: ui, loader: "ts" }, bundle: true, write: false, target: "es2022",
});

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"],
});
const page = await browser.newPage();
let asked = 0, going = 0, most = 0;
await page.route("http://page.test/**", async (route) => {
  if (!route.request().url().endsWith("/v1/status")) {
    await route.fulfill({ contentType: "text/html", body: "<!doctype html><body></body>" });
    return;
  }
  const number = ++asked;
  most = Math.max(most, ++going);
  // Each answer is late, and every other one later than the one after it would be.
  await new Promise((done) => setTimeout(done, number % 2 === 1 ? 600 : 200));
  --going;
  await route.fulfill({ json: { number, gpus: [] } }).catch(() => {});
});
await page.goto("http://page.test/");
await page.evaluate(() => {
  globalThis.shown = [];
  new MutationObserver(() => {
    const number = Number(document.body.innerText);
    if (number > 0 && number !== globalThis.shown.at(-1)) globalThis.shown.push(number);
  }).observe(document.body, { childList: true, subtree: true, characterData: true });
});
await page.addScriptTag({ content: bundled.outputFiles[0].text });
for (let i = 0; i < 20; ++i) {
  await page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
  await page.waitForTimeout(20);
}
await page.waitForTimeout(1000);
const before = asked;
await page.waitForTimeout(3000);
assert.ok(asked - before <= 4, `${asked - before} questions in 3 s`);
assert.equal(most, 1, `${most} questions at a time`);
const shown = await page.evaluate(() => globalThis.shown);
assert.deepEqual(shown, [...shown].sort((a, b) => a - b), "an older answer after a newer one");
await browser.close();
console.log("ok");
