// A tool for Ratchet in JavaScript: a NATS service with one endpoint whose metadata says that it is a tool.
//
//   npm ci && NATS_URL=nats://127.0.0.1:4222 node tool.mjs
import { connect } from "@nats-io/transport-node";
import { Svcm } from "@nats-io/services";

const nc = await connect({ servers: process.env.NATS_URL });
const service = await new Svcm(nc).add({ name: "words", version: "1.0.0", description: "Works on words" });

service.addEndpoint("reverse", {
  subject: "tools.words.reverse",
  metadata: {
    "ratchet.tool": "reverse_text",
    "ratchet.description": "Reverses a text.",
    "ratchet.effect": "read",
    "ratchet.schema": JSON.stringify({
      type: "object",
      properties: { text: { type: "string" } },
      required: ["text"],
      additionalProperties: false,
    }),
  },
  handler: (err, msg) => {
    if (err) return;
    const { text } = msg.json();
    if (text === "") return msg.respondError(400, "there is nothing to reverse");
    msg.respond(JSON.stringify({ text: [...text].reverse().join(""), call: msg.headers?.get("Idempotency-Key") }));
  },
});

process.on("SIGINT", () => nc.drain());
await nc.closed();
