// Writes the libraries of the console's page into src/millrace/console/page/vendor: `./run page`.
import { cp, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = fileURLToPath(new URL("./", import.meta.url));
const target = process.argv[2] ?? fileURLToPath(new URL("../../src/millrace/console/page/vendor/", import.meta.url));
const client = fileURLToPath(new URL("../typescript/dist/", import.meta.url));

await rm(target, { recursive: true, force: true });
await mkdir(target, { recursive: true });
await build({
  absWorkingDir: root,
  entryPoints: { preact: "entry-preact.js", chart: "entry-chart.js", sankey: "entry-sankey.js" },
  outdir: target,
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  legalComments: "none", // NOTICE.txt names them all
});
await cp(`${root}node_modules/uplot/dist/uPlot.min.css`, `${target}/chart.css`);
await cp(`${root}node_modules/@fontsource-variable/inter/files/inter-latin-wght-normal.woff2`, `${target}/inter.woff2`);
await mkdir(`${target}/millrace`);
for (const name of await readdir(client)) {
  if (name.endsWith(".js")) await cp(`${client}${name}`, `${target}/millrace/${name}`);
}

// What each of them asks to be passed on with it.
const packages = [
  "preact", "htm", "uplot", "d3-sankey", "d3-array", "d3-shape", "d3-path", "internmap", "@fontsource-variable/inter",
  "../../typescript/node_modules/@noble/hashes",
];
const notices = [];
for (const name of packages) {
  const folder = `${root}node_modules/${name}`;
  const { name: title, version, license } = JSON.parse(await readFile(`${folder}/package.json`, "utf8"));
  const file = (await readdir(folder)).find((entry) => entry.toUpperCase().startsWith("LICENSE"));
  const text = (await readFile(`${folder}/${file}`, "utf8")).trim();
  notices.push(`${title} ${version}, ${license}\n\n${text}\n`);
}
await writeFile(`${target}/NOTICE.txt`, notices.join(`\n${"-".repeat(80)}\n\n`));
