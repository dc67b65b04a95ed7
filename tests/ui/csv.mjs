// Tests the CSV of a report's charts with names that a spreadsheet would read as formulas. Prints
// "ok".
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import assert from "node:assert/strict";

const folder = fileURLToPath(new URL("../../web/ui/", import.meta.url));
const { build } = createRequire(`${folder}package.json`)("esbuild");
const built = await build({
  entryPoints: [`${folder}src/report/figure.tsx`],
  bundle: true,
  write: false,
  format: "esm",
  jsx: "automatic",
  jsxImportSource: "preact",
});
const { csvText } = await import(`data:text/javascript,${encodeURIComponent(built.outputFiles[0].text)}`);

for (const name of ["=cmd|'/c calc'!A1", "+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1"])
  assert.equal(csvText({ head: ["policy"], rows: [[name]] }), `policy\n'${name}\n`);
assert.equal(csvText({ head: ["=1,2"], rows: [[-1.5, 0, null, undefined, "a\"b", "bert"]] }), '"\'=1,2"\n-1.5,0,,,"a""b",bert\n');
console.log("ok");
