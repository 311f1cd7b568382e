// Reads a JSON list of diagrams from stdin; prints a JSON list of messages, "" for a diagram without errors.
// node parse_mermaid.mjs PATH/mermaid.esm.min.mjs

// Mermaid cleans text with DOMPurify, which needs a browser. Given a window without `createHTMLDocument` it calls itself
// unsupported and returns every text as it is, which is enough for parsing.
const document = { nodeType: 9, currentScript: null, implementation: {}, createElement: () => ({}) };
globalThis.window = { Element: class {}, document, addEventListener() {} };

const { default: mermaid } = await import(process.argv[2]);
let input = "";
for await (const part of process.stdin) input += part;
const messages = [];
for (const diagram of JSON.parse(input)) {
  try {
    await mermaid.parse(diagram);
    messages.push("");
  } catch (error) {
    messages.push(String(error.message ?? error) || "unknown error");
  }
}
console.log(JSON.stringify(messages));
