// Server-sent events, read from the body of a fetch: in Node and in browsers the same, with headers and a bound.

export interface ServerEvent {
  event: string;
  id: string;
  data: string;
}

const LONGEST = 4 * 1024 * 1024; // characters of one event; a quote has some thousands

/** The events of a body; `heard` is called for whatever comes, comments too. Throws `RangeError` for one too long. */
export async function* readEvents(body: ReadableStream<Uint8Array>, heard: () => void): AsyncGenerator<ServerEvent> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      heard();
      text += decoder.decode(value, { stream: true });
      const blocks = text.split(/\r?\n\r?\n/);
      text = blocks.pop() ?? "";
      if (text.length > LONGEST) throw new RangeError(`an event of more than ${LONGEST} characters`);
      for (const block of blocks) {
        const event = parse(block);
        if (event) yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // the connection may be gone already
  }
}

function parse(block: string): ServerEvent | undefined {
  const event: ServerEvent = { event: "message", id: "", data: "" };
  const data: string[] = [];
  for (const line of block.split(/\r?\n/)) {
    const colon = line.indexOf(":");
    if (colon === 0) continue; // a comment keeps the connection alive
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") data.push(value);
    else if (name === "event" || name === "id") event[name] = value;
  }
  event.data = data.join("\n");
  return data.length ? event : undefined;
}
