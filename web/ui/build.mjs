// Makes ../ui.html, one file without a network, and ../ui.csp, the policy that allows its script and
// its style and nothing else; and ../report.html, of `derate report`. `node build.mjs --check` compares them with what is committed.
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const here = new URL(".", import.meta.url).pathname;

async function bundled(entry) {
  const result = await build({
    entryPoints: [here + entry],
    bundle: true,
    minify: true,
    write: false,
    target: "es2022",
    charset: "utf8",
    legalComments: "none",
    jsx: "automatic",
    jsxImportSource: "preact",
  });
  return result.outputFiles[0].text.trim().replaceAll("</script", "<\\/script");
}

const hash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;

// A page's template with what its entries came to; its own figures and title are put in later.
async function page(folder, fill = (text) => text) {
  const script = await bundled(`${folder}/main.tsx`);
  const style = await bundled(`${folder}/style.css`);
  const html = readFileSync(`${here}${folder}/page.html`, "utf8")
    .replace("@STYLE@", () => style)
    .replace("@SCRIPT@", () => script);
  return { html: fill(html, script, style), script, style };
}

const ui = await page("src");
const policy = [
  "default-src 'none'",
  `script-src ${hash(ui.script)}`,
  `style-src ${hash(ui.style)}`,
  "connect-src 'self'",
  "img-src data:",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

// The report's charts are saved as pictures through data: addresses, which take their style along.
const report = await page("src/report", (html, script) =>
  html.replace("@POLICY@", `default-src 'none'; script-src ${hash(script)}; style-src 'unsafe-inline'; img-src data: blob:`));

const made = { "ui.html": ui.html, "ui.csp": policy + "\n", "report.html": report.html };
for (const [name, text] of Object.entries(made)) {
  const file = here + "../" + name;
  if (!process.argv.includes("--check")) {
    writeFileSync(file, text);
  } else if (readFileSync(file, "utf8") !== text) {
    console.error(`web/${name} is not what web/ui makes: run npm run build in web/ui`);
    process.exitCode = 1;
  }
}
console.log(Object.entries(made).map(([name, text]) => `${name} ${text.length}`).join(", "));
