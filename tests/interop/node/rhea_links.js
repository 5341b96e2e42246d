// rhea at the limits: `credit`, `links`, `large SIZE` or `reconnect`. Prints what it saw, line by
// line; "?cut" asks for the connection to be cut, and waits for a line on standard input.
const rhea = require('rhea');
const [what, port, queue, size] = process.argv.slice(2);
const address = `queue://${queue}`;

function connect(options) {
  const container = rhea.create_container({ id: `rhea-${queue}` });
  return container.connect({
    host: '127.0.0.1', port: Number(port), username: 'guest', password: 'guest', reconnect: false,
    ...options,
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
  const { name } = await answer;
  if (name !== 'accepted') throw new Error(name);
}

const does = {
  async credit(connection) {
    const sender = connection.open_sender(address);
    for (let i = 0; i < 5; i++) await send(sender, { body: i });
    const receiver = connection.open_receiver({ source: address, credit_window: 0 });
    const got = [];
    receiver.on('message', (context) => got.push(context.message.body));
    await once(receiver, 'receiver_open');
    receiver.add_credit(2);
    await send(sender, { body: 'behind them' }); // what comes for the credit comes before
    await send(sender, { body: 'and behind it' });
    console.log(`starved ${got}`);
    const drained = once(receiver, 'receiver_drained');
    receiver.drain_credit();
    receiver.add_credit(10);
    await drained;
    console.log(`drained ${got.length} credit ${receiver.credit}`);
  },

  async links(connection) {
    const links = [];
    for (let i = 0; i < 1000; i++) links.push(connection.open_sender({ target: address, name: `l${i}` }));
    let accepted = 0;
    await Promise.all(links.map(async (link) => { await send(link, { body: 'x' }); accepted++; }));
    console.log(`links ${accepted}`);
  },

  async large(connection) {
    const body = Buffer.alloc(Number(size));
    for (let i = 0; i < body.length; i++) body[i] = (i * 31) % 251;
    const sender = connection.open_sender(address);
    await send(sender, { body: rhea.message.data_section(body) });
    const receiver = connection.open_receiver({ source: address, credit_window: 1 });
    const { context } = await once(receiver, 'message');
    console.log(`large ${context.message.body.content.equals(body)}`);
  },

  // rhea comes back by itself, and attaches its links again.
  async reconnect(connection) {
    const sender = connection.open_sender(address);
    await send(sender, { body: 'kept' });
    const receiver = connection.open_receiver({ source: address, credit_window: 1, autoaccept: false });
    await once(receiver, 'message');
    const lost = once(connection, 'disconnected');
    const again = once(receiver, 'message');
    console.log('?cut');
    await once(process.stdin, 'data');
    await lost;
    const { context } = await again;
    const { body, first_acquirer, delivery_count } = context.message;
    console.log(`again: ${body} ${first_acquirer} ${delivery_count}`);
    context.delivery.accept();
    const next = once(receiver, 'message');
    await send(sender, { body: 'after' });
    const after = (await next).context;
    console.log(`after: ${after.message.body}`);
    after.delivery.accept();
  },
};

async function main() {
  const is_tried = what === 'reconnect';
  const connection = connect(is_tried ? { reconnect: true, initial_reconnect_delay: 50 } : {});
  await once(connection, 'connection_open');
  await does[what](connection);
  connection.close();
  await once(connection, 'connection_close', 'disconnected');
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
setTimeout(() => { console.error('stuck'); process.exit(2); }, 80000);
