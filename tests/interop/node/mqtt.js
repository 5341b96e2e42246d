// MQTT.js against a gateway: node client.js <url> <prefix> <version>
const mqtt = require("mqtt");
const [url, prefix, version] = process.argv.slice(2);
const protocolVersion = Number(version);
const session = { clean: false, properties: { sessionExpiryInterval: 300 } };

function connect(clientId, options = {}) {
  const known = protocolVersion === 5 ? options : { ...options, properties: undefined };
  return mqtt.connectAsync(url, {
    clientId, protocolVersion, protocolId: protocolVersion === 3 ? "MQIsdp" : "MQTT",
    reconnectPeriod: 0, ...known,
  });
}

function messages(client, count) {
  const received = [];
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`only ${received.length} of ${count}`)), 10000);
    client.on("message", (topic, payload, packet) => {
      received.push({ topic, payload: payload.toString(), qos: packet.qos, retain: packet.retain,
        properties: packet.properties || {} });
      if (received.length === count) { clearTimeout(timer); resolve(received); }
    });
  });
}

const SAID = {
  payloadFormatIndicator: true, contentType: "text/plain", responseTopic: "r",
  correlationData: Buffer.from("c"), messageExpiryInterval: 60, userProperties: { a: ["1", "2"] },
};

function shown(said, ...more) {
  return [said.payloadFormatIndicator, said.contentType, said.responseTopic,
    said.correlationData.toString(), ...more, JSON.stringify(said.userProperties)].join(" ");
}

// What CONNECT and CONNACK say, messages, wills, aliases both ways, refusals, a takeover.
async function everyProperty(client) {
  let heard;
  const nameless = mqtt.connect(url, { clientId: "", protocolVersion, reconnectPeriod: 0, properties: {
    sessionExpiryInterval: 5, receiveMaximum: 20, maximumPacketSize: 1000, topicAliasMaximum: 10,
    requestResponseInformation: true, requestProblemInformation: true,
    userProperties: { kind: "test" },
  } });
  nameless.on("connect", (connack) => { heard = connack.properties; });
  await new Promise((resolve) => nameless.once("connect", resolve));
  console.log("agreement", Boolean(heard.assignedClientIdentifier), heard.receiveMaximum,
    heard.maximumPacketSize, heard.topicAliasMaximum,
    heard.responseInformation.includes(heard.assignedClientIdentifier));

  await client.subscribeAsync(`${prefix}/properties`, {
    qos: 1, properties: { subscriptionIdentifier: 9, userProperties: { why: "test" } },
  });
  let coming = messages(client, 1);
  await client.publishAsync(`${prefix}/properties`, "x", { qos: 1, properties: SAID });
  let said = (await coming)[0].properties;
  console.log("properties", shown(said, said.subscriptionIdentifier),
    said.messageExpiryInterval > 50 && said.messageExpiryInterval <= 60);
  client.removeAllListeners("message");

  coming = messages(client, 1);
  const lost = await connect(`${prefix}-lost5`, { ...session, will: {
    topic: `${prefix}/will`, payload: Buffer.from("gone"), qos: 1, retain: false,
    properties: { ...SAID, willDelayInterval: 1 },
  } });
  lost.stream.destroy();
  said = (await coming)[0].properties;
  console.log("will properties", shown(said));
  client.removeAllListeners("message");

  // the gateway's aliases to this client, and the client's to the gateway
  await nameless.subscribeAsync([`${prefix}/one/topic`, `${prefix}/two/topic`], { qos: 1 });
  coming = messages(nameless, 4);
  const publisher = await connect(`${prefix}-alias`, { autoAssignTopicAlias: true, autoUseTopicAlias: true });
  for (const word of ["one", "two", "two", "one"]) {
    await publisher.publishAsync(`${prefix}/${word}/topic`, "x", { qos: 1 });
  }
  console.log("aliases", (await coming).map((m) => m.topic.slice(prefix.length + 1)).join(" "));
  await publisher.endAsync();
  await nameless.endAsync();

  let why;
  client.on("packetreceive", (packet) => { if (packet.cmd === "puback") why = packet.properties; });
  const refused = await client.publishAsync("$SYS/mine", "x", { qos: 1 }).then(
    () => ({}), (error) => error);
  console.log("refusal", refused.code, /own/.test(why.reasonString));

  const first = await connect(`${prefix}-twice`);
  const goodbye = new Promise((resolve) => first.once("disconnect", resolve));
  const second = await connect(`${prefix}-twice`);
  const packet = await goodbye;
  console.log("taken over", packet.reasonCode, Boolean(packet.properties.reasonString));
  await first.endAsync(true);
  await second.endAsync(false, { reasonCode: 0, properties: { sessionExpiryInterval: 0,
    reasonString: "done", userProperties: { a: "b" } } });
}

async function main() {
  const client = await connect(`${prefix}-main`);
  await client.subscribeAsync(`${prefix}/qos/#`, { qos: 2 });
  let coming = messages(client, 3);
  for (const qos of [0, 1, 2]) await client.publishAsync(`${prefix}/qos/${qos}`, `q${qos}`, { qos });
  const byQos = (await coming).sort((a, b) => a.qos - b.qos);
  console.log("qos", byQos.map((m) => `${m.payload}/${m.qos}`).join(" "));
  client.removeAllListeners("message");

  await client.publishAsync(`${prefix}/kept`, "kept", { qos: 1, retain: true });
  coming = messages(client, 1);
  await client.subscribeAsync(`${prefix}/kept`, { qos: 1 });
  const kept = (await coming)[0];
  console.log("retained", kept.payload, kept.retain);
  client.removeAllListeners("message");

  await client.subscribeAsync(`${prefix}/will`, { qos: 1 });
  coming = messages(client, 1);
  const lost = await connect(`${prefix}-lost`, {
    will: { topic: `${prefix}/will`, payload: Buffer.from("gone"), qos: 1, retain: false },
  });
  lost.stream.destroy();
  console.log("will", (await coming)[0].payload);
  client.removeAllListeners("message");

  const away = await connect(`${prefix}-away`, session);
  await away.subscribeAsync(`${prefix}/away`, { qos: 2 });
  await away.endAsync();
  for (const qos of [1, 2]) await client.publishAsync(`${prefix}/away`, `away${qos}`, { qos });
  const back = mqtt.connect(url, {
    clientId: `${prefix}-away`, protocolVersion, reconnectPeriod: 0,
    protocolId: protocolVersion === 3 ? "MQIsdp" : "MQTT", ...session,
    properties: protocolVersion === 5 ? session.properties : undefined,
  });
  console.log("session", (await messages(back, 2)).map((m) => m.payload).join(" "));
  await back.endAsync();

  const members = [await connect(`${prefix}-one`), await connect(`${prefix}-two`)];
  for (const member of members) await member.subscribeAsync(`$share/g/${prefix}/work`, { qos: 1 });
  const shares = members.map((member) => messages(member, 5));
  for (let i = 0; i < 10; i++) await client.publishAsync(`${prefix}/work`, String(i), { qos: 1 });
  const all = (await Promise.all(shares)).flat().map((m) => Number(m.payload));
  console.log("shared", all.sort((a, b) => a - b).join(""));
  for (const member of members) await member.endAsync();

  if (protocolVersion === 5) await everyProperty(client);
  await client.endAsync();
  console.log("closed");
}

main().catch((error) => { console.error(error); process.exit(1); });
