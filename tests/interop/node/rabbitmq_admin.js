// rabbitmq-admin, a client of RabbitMQ's HTTP API: base URL, name.
const { RabbitAdmin } = require("rabbitmq-admin");

async function main(host, name) {
  const admin = RabbitAdmin({ rabbitHost: host, user: "guest", pass: "guest" });
  const overview = await admin.getOverview();
  console.log("product", overview.product_name);
  await admin.createExchange("/", { name, type: "topic", durable: true, auto_delete: false, arguments: {} });
  await admin.createQueue("/", name, { durable: true, arguments: { "x-max-length": 5 } });
  await admin.createBinding({ vhost: "/", source: name, destination: name, type: "queue", routingKey: "a.#" });
  const sent = await admin.publishToExchange("/", name, {
    routing_key: "a.b", payload: "hello", payload_encoding: "string", properties: {},
  });
  console.log("routed", sent.routed);
  const queue = await admin.getQueue("/", name);
  console.log("queue", queue.name, queue.durable, queue.arguments["x-max-length"]);
  const bindings = await admin.getQueueBindings("/", name);
  console.log("bound", bindings.filter((each) => each.source === name).map((each) => each.routing_key).join());
  console.log("nodes", (await admin.getNodes()).map((each) => each.running).join());
  await admin.deleteQueue("/", name, { ifUnused: true });
  await admin.deleteExchange("/", name);
  console.log("left", (await admin.getQueues("/")).items.some((each) => each.name === name));
}

main(...process.argv.slice(2)).catch((error) => {
  console.error(error.message, error.response && error.response.data);
  process.exit(1);
});
