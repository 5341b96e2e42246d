// MQTT.js as tests command it: one JSON object a line on standard input,
// {id, op, seat, ...}, one on standard output for each, {id, ...} or {id, error}.
// Bytes are base64 in {"$": ...}.
const mqtt = require("mqtt");
const readline = require("readline");
const seats = new Map();

// null is what was not said
const revive = (key, value) => (value === null ? undefined
  : value.$ !== undefined ? Buffer.from(value.$, "base64") : value);
const bytes = (value) => ({ $: Buffer.from(value).toString("base64") });
function plain(properties) {
  const said = { ...properties };
  for (const [name, value] of Object.entries(said)) if (Buffer.isBuffer(value)) said[name] = bytes(value);
  return said;
}

// A queue that can be waited for.
class Queue {
  constructor() { this.items = []; this.waiters = []; }
  put(item) { const next = this.waiters.shift(); if (next) next(item); else this.items.push(item); }
  get() {
    return this.items.length ? Promise.resolve(this.items.shift()) : new Promise((done) => this.waiters.push(done));
  }
}

class Seat {
  constructor({ url, options, login, acknowledgements }) {
    this.messages = new Queue();
    this.ends = new Queue();
    this.answers = {}; // packets of the gateway, the last of each kind
    this.connected = new Queue();
    const client = this.client = mqtt.connect(url, { ...options, reconnectPeriod: 0, manualConnect: true });
    client.on("packetreceive", (packet) => {
      this.answers[packet.cmd] = packet;
      if (packet.cmd === "connack") this.connected.put(packet);
    });
    client.on("message", (topic, payload, packet) => this.messages.put({
      topic, payload: bytes(payload), qos: packet.qos, retain: packet.retain, properties: plain(packet.properties),
    }));
    client.on("disconnect", (packet) => this.ends.put({
      reason: packet.reasonCode, properties: plain(packet.properties),
    }));
    client.on("error", (error) => this.connected.put({ problem: String(error) }));
    if (login) this.login();
    if (acknowledgements) {
      client.on("packetsend", (packet) => {
        if (/^pub(ack|rec|rel|comp)$/.test(packet.cmd)) packet.properties = acknowledgements;
      });
    }
    client.connect();
  }

  // A login of several steps: what is answered to the gateway's AUTH is asked for on the way.
  login() {
    this.client.handleAuth = (packet, callback) => {
      this.challenge = plain(packet.properties);
      this.proceed = (properties) => callback(null, { cmd: "auth", reasonCode: 24, properties });
      this.connected.put({ challenge: this.challenge });
    };
  }

  answered(kind) {
    const packet = this.answers[kind] || {};
    const codes = packet.granted || packet.reasonCode;
    return { reason: [codes].flat()[0] || 0, properties: plain(packet.properties) };
  }
}

async function opened(seat) {
  const packet = await seat.connected.get();
  if (packet.problem) throw new Error(packet.problem);
  if (packet.challenge) return packet;
  return { reason: packet.reasonCode ?? packet.returnCode, session: packet.sessionPresent,
    properties: plain(packet.properties) };
}

const settled = (promise) => promise.then(() => undefined, (error) => error);

const OPERATIONS = {
  async connect(asked) {
    const seat = new Seat(asked);
    seats.set(asked.seat, seat);
    return opened(seat);
  },
  async auth(asked, seat) {
    seat.proceed(asked.properties);
    return opened(seat);
  },
  async subscribe(asked, seat) {
    const { filter, qos, properties } = asked;
    await settled(seat.client.subscribeAsync(filter, { qos, properties }));
    return seat.answered("suback");
  },
  async unsubscribe(asked, seat) {
    await settled(seat.client.unsubscribeAsync(asked.filter, { properties: asked.properties }));
    return seat.answered("unsuback");
  },
  async publish(asked, seat) {
    const { topic, payload, qos, retain, properties } = asked;
    seat.answers = {};
    await settled(seat.client.publishAsync(topic, payload, { qos, retain, properties }));
    return { puback: seat.answered("puback"), pubrec: seat.answered("pubrec") };
  },
  message: (asked, seat) => seat.messages.get(),
  ended: (asked, seat) => seat.ends.get(),
  async leave(asked, seat) {
    await seat.client.endAsync(false, { reasonCode: 0, properties: asked.properties });
    return {};
  },
  async lose(asked, seat) {
    seat.client.stream.destroy();
    return {};
  },
};

readline.createInterface({ input: process.stdin }).on("line", async (line) => {
  const asked = JSON.parse(line, revive);
  let answer;
  try {
    answer = await OPERATIONS[asked.op](asked, seats.get(asked.seat));
  } catch (error) {
    answer = { error: String(error && error.stack) };
  }
  process.stdout.write(`${JSON.stringify({ id: asked.id, ...answer })}\n`);
}).on("close", () => process.exit(0));
