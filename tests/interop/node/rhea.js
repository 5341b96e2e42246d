// One conversation with rhea: sends, receives, every outcome, credit, drain, a dynamic node, an
// error, large messages. Prints one JSON object with what it saw.
const rhea = require('rhea');
const [port, queue] = process.argv.slice(2);
const seen = { outcomes: [], bodies: [], redelivered: [] };
const large = 'x'.repeat(1 << 20);

function connect(container) {
  return container.connect({
    host: '127.0.0.1', port: Number(port), username: 'guest', password: 'guest', reconnect: false,
  });
}

function once(emitter, ...names) {
  return new Promise((resolve) => {
    for (const name of names) emitter.once(name, (context) => resolve({ name, context }));
  });
}

async function send(sender, message) {
  if (!sender.sendable()) await once(sender, 'sendable');
  const answer = once(sender, 'accepted', 'released', 'rejected', 'modified');
  sender.send(message);
  return (await answer).name;
}

async function main() {
  const container = rhea.create_container({ id: `rhea-${queue}` });
  const connection = connect(container);
  await once(connection, 'connection_open');
  seen.product = connection.properties.product;

  const sender = connection.open_sender({ target: { address: `queue://${queue}` } });
  await once(sender, 'sendable');
  seen.outcomes.push(await send(sender, { body: 'one', message_id: 1, application_properties: { n: 1 } }));
  seen.outcomes.push(await send(sender, { body: { deep: [1, 2, 3] }, subject: 'map' }));
  seen.outcomes.push(await send(sender, { body: rhea.message.data_section(Buffer.from('raw')) }));
  seen.outcomes.push(await send(sender, { body: large }));
  const nobody = connection.open_sender({ target: { address: `topic://${queue}.nobody` } });
  await once(nobody, 'sendable');
  seen.outcomes.push(await send(nobody, { body: 'lost' }));

  const receiver = connection.open_receiver({
    source: { address: `/queues/${queue}` }, credit_window: 0, autoaccept: false,
  });
  await once(receiver, 'receiver_open');
  const take = async () => {
    const coming = once(receiver, 'message');
    receiver.add_credit(1);
    return (await coming).context;
  };
  let got = await take();
  seen.bodies.push(got.message.body);
  got.delivery.release({ delivery_failed: true });
  got = await take();
  seen.redelivered.push([got.message.body, got.message.first_acquirer, got.message.delivery_count]);
  got.delivery.release();
  got = await take();
  seen.redelivered.push([got.message.body, got.message.first_acquirer, got.message.delivery_count]);
  got.delivery.accept();
  got = await take();
  seen.bodies.push(got.message.body);
  got.delivery.accept();
  got = await take();
  seen.bodies.push(got.message.body.content.toString());
  got.delivery.reject({ condition: 'amqp:decode-error', description: 'no good' });
  got = await take();
  seen.large = got.message.body === large;
  got.delivery.accept();

  const drained = once(receiver, 'receiver_drained');
  receiver.drain_credit();
  receiver.add_credit(5);
  await drained;
  seen.credit = receiver.credit;

  const replies = connection.open_receiver({ source: { dynamic: true } });
  await once(replies, 'receiver_open');
  const reply = once(replies, 'message');
  const back = connection.open_sender({ target: { address: replies.source.address } });
  await once(back, 'sendable');
  back.send({ body: 'pong' });
  seen.reply = (await reply).context.message.body;

  const failing = connection.open_receiver({ source: { address: `/queues/${queue}-missing` } });
  seen.error = (await once(failing, 'receiver_error')).context.receiver.error.condition;
  connection.close();
  await once(connection, 'connection_close', 'disconnected');
  console.log(JSON.stringify(seen));
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
setTimeout(() => { console.error('stuck', JSON.stringify(seen).slice(0, 500)); process.exit(2); }, 30000);
