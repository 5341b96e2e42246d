// SCRAM-SHA-256 through the SASL hooks of MQTT.js and rhea: node scram.js <mqtt|amqp> <port> <user> <password>
// Prints one line: what came of it.
const crypto = require("crypto");
const [protocol, port, user, password] = process.argv.slice(2);
const METHOD = "SCRAM-SHA-256";

class Scram {
  constructor() {
    this.bare = `n=${user},r=${crypto.randomBytes(12).toString("hex")}`;
  }

  first() {
    return Buffer.from(`n,,${this.bare}`);
  }

  final(challenge) {
    const said = challenge.toString();
    const facts = Object.fromEntries(said.split(",").map((part) => [part[0], part.slice(2)]));
    const hmac = (key, text) => crypto.createHmac("sha256", key).update(text).digest();
    const salted = crypto.pbkdf2Sync(password, Buffer.from(facts.s, "base64"), Number(facts.i), 32, "sha256");
    const start = `c=biws,r=${facts.r}`;
    const all = `${this.bare},${said},${start}`;
    const key = hmac(salted, "Client Key");
    const signature = hmac(crypto.createHash("sha256").update(key).digest(), all);
    this.expected = `v=${hmac(hmac(salted, "Server Key"), all).toString("base64")}`;
    const proof = Buffer.from(key.map((byte, index) => byte ^ signature[index]));
    return Buffer.from(`${start},p=${proof.toString("base64")}`);
  }
}

function overMqtt() {
  const scram = new Scram();
  const client = require("mqtt").connect(`mqtt://127.0.0.1:${port}`, {
    protocolVersion: 5, reconnectPeriod: 0, manualConnect: true,
    properties: { authenticationMethod: METHOD, authenticationData: scram.first() },
  });
  client.handleAuth = (packet, callback) => callback(null, {
    cmd: "auth", reasonCode: 24,
    properties: {
      authenticationMethod: METHOD,
      authenticationData: scram.final(packet.properties.authenticationData),
    },
  });
  client.on("connect", (answer) => {
    const isRight = answer.properties.authenticationData.toString() === scram.expected;
    console.log(isRight ? "connected to the right server" : "connected to a stranger");
    client.end();
  });
  client.on("error", (error) => { console.log("refused", error.code); client.end(true); });
  client.connect();
}

function overAmqp() {
  const container = require("rhea").create_container();
  const scram = new Scram();
  const mechanism = {
    start: (callback) => callback(null, scram.first()),
    step: (challenge, callback) => callback(null, scram.final(challenge)),
  };
  container.on("connection_open", (context) => { console.log("connected"); context.connection.close(); });
  container.on("connection_error", (context) => console.log("refused", context.error.condition));
  container.on("disconnected", () => {});
  container.connect({
    host: "127.0.0.1", port: Number(port), reconnect: false,
    sasl_mechanisms: { [METHOD]: () => mechanism },
  });
}

(protocol === "mqtt" ? overMqtt : overAmqp)();
