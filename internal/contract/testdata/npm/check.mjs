// Reads the AsyncAPI document named on the command line as AsyncAPI's own tools do: prints what is wrong with it.
import { Parser, fromFile } from "@asyncapi/parser";

const { document, diagnostics } = await fromFile(new Parser(), process.argv[2]).parse();
const wrong = diagnostics.filter((d) => d.severity <= 1);
for (const d of wrong) console.log(`${d.path.join(".")}: ${d.message}`);
if (document) console.log(`${document.operations().length} operations, ${document.messages().length} messages`);
process.exit(document && wrong.length === 0 ? 0 : 1);
