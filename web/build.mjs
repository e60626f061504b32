// Compiles `src` into `dist`. With `--check` it compiles into a folder of its own and says whether
// `dist`, which is committed so that the Rust build needs no Node, is what `src` gives.

import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const dist = join(here, "dist");

function compile(folder) {
  const tsc = join(here, "node_modules", "typescript", "bin", "tsc");
  const done = spawnSync(process.execPath, [tsc, "--project", here, "--outDir", folder], { stdio: "inherit" });
  if (done.status !== 0) {
    process.exit(1);
  }
}

function scripts(folder) {
  const found = readdirSync(folder, { recursive: true }).map((name) => name.replaceAll("\\", "/"));
  return found.filter((name) => name.endsWith(".js")).sort();
}

function differences(fresh) {
  const names = new Set([...scripts(dist), ...scripts(fresh)]);
  const content = (folder, name) => {
    try {
      return readFileSync(join(folder, name), "utf8");
    } catch {
      return null;
    }
  };
  return [...names].filter((name) => content(dist, name) !== content(fresh, name));
}

if (process.argv.includes("--check")) {
  const fresh = mkdtempSync(join(tmpdir(), "towline-web-"));
  try {
    compile(fresh);
    const different = differences(fresh);
    if (different.length > 0) {
      console.error(`dist is not what src gives: ${different.join(", ")}; run \`npm run build\` in web/`);
      process.exitCode = 1;
    } else {
      console.log(`${scripts(dist).length} scripts of dist are what src gives`);
    }
  } finally {
    rmSync(fresh, { recursive: true, force: true });
  }
} else {
  rmSync(dist, { recursive: true, force: true });
  compile(dist);
}
