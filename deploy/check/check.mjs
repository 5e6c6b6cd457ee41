// Checks the Dockerfile and the Kubernetes manifests named on the command line: prints every problem and exits 1 if there is
// one. A manifest becomes a TypeScript literal of its kind's type, so that the compiler finds unknown and missing fields.
import { readFileSync, writeFileSync, mkdtempSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { validate } from "dockerfile-utils";
import ts from "typescript";
import { parseAllDocuments } from "yaml";

const here = dirname(fileURLToPath(import.meta.url));
const problems = [];

function checkDockerfile(path) {
  for (const d of validate(readFileSync(path, "utf8"))) {
    problems.push(`${path}:${d.range.start.line + 1}: ${d.message}`);
  }
}

// moduleOf names the module that declares a kind of an API version.
function moduleOf(apiVersion) {
  return apiVersion.startsWith("keda.sh/") ? `@kubernetes-models/keda/${apiVersion}` : `kubernetes-models/${apiVersion}`;
}

function literals(path) {
  return parseAllDocuments(readFileSync(path, "utf8")).map((document, i) => {
    for (const e of document.errors) problems.push(`${path}: ${e.message}`);
    const object = document.toJS();
    if (!object?.apiVersion || !object.kind) {
      problems.push(`${path}: document ${i + 1} has no apiVersion or kind`);
      return "";
    }
    const type = `${object.kind}_${i}`;
    return `import type { I${object.kind} as ${type} } from ${JSON.stringify(moduleOf(object.apiVersion))};\n` +
      `({ ${JSON.stringify(object).slice(1, -1)} }) satisfies ${type};\n`;
  }).join("");
}

function checkManifests(paths) {
  const folder = mkdtempSync(join(here, "node_modules", ".check-"));
  try {
    const names = new Map(paths.map((path, i) => {
      const name = join(folder, `m${i}.ts`);
      writeFileSync(name, literals(path));
      return [name, path];
    }));
    const program = ts.createProgram([...names.keys()], {
      noEmit: true, strict: true, skipLibCheck: true, module: ts.ModuleKind.NodeNext,
      moduleResolution: ts.ModuleResolutionKind.NodeNext, types: [],
    });
    for (const d of ts.getPreEmitDiagnostics(program)) {
      problems.push(`${names.get(d.file?.fileName) ?? "?"}: ${ts.flattenDiagnosticMessageText(d.messageText, " ")}`);
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const paths = process.argv.slice(2);
paths.filter((p) => !p.endsWith(".yaml")).forEach(checkDockerfile);
checkManifests(paths.filter((p) => p.endsWith(".yaml")));
for (const p of problems) console.log(p);
process.exit(problems.length > 0 ? 1 : 0);
