// A client in JavaScript, as its users write one: confirms, consuming, returns, errors.
const amqp = require("amqplib");

async function main(url, name) {
  const connection = await amqp.connect(url);
  console.log("product", connection.connection.serverProperties.product);

  const channel = await connection.createConfirmChannel();
  await channel.assertQueue(name, { durable: true });
  const sent = [];
  for (let number = 0; number < 100; number++) {
    channel.sendToQueue(name, Buffer.from(String(number)), { persistent: true });
    sent.push(String(number));
  }
  await channel.waitForConfirms();
  console.log("confirmed", sent.length);

  const received = [];
  await channel.prefetch(10);
  await new Promise((resolve) => {
    channel.consume(name, (message) => {
      if (message === null) return; // cancelled: its queue was deleted
      received.push(message.content.toString());
      channel.ack(message);
      if (received.length === sent.length) resolve();
    });
  });
  const inOrder = received.every((body, index) => body === sent[index]);
  console.log("received", received.length, inOrder ? "in order" : "out of order");

  const returned = new Promise((resolve) => channel.once("return", resolve));
  channel.publish("amq.direct", "nowhere", Buffer.from("lost"), { mandatory: true });
  const { fields } = await returned;
  console.log("returned", fields.replyCode, fields.replyText);

  const doomed = await connection.createChannel();
  doomed.on("error", () => {});
  await doomed.checkQueue(name + "-missing").catch((error) => {
    console.log("channel error", error.code);
  });

  await channel.deleteQueue(name);
  await connection.close();
  console.log("closed");
}

main(process.argv[2], process.argv[3]).catch((error) => {
  console.error(error);
  process.exit(1);
});
