import { connect, createServer } from 'node:net'

/**
 * Passes connections into and out of the network of `Machines`, in which it runs. A socket belongs to the network in which it was opened,
 * also in another process. It is plain JavaScript, which starts faster than with the loader of the other processes.
 *
 * `{ to: { host, port } }` with a server: each connection of that server leads to this address.
 * `{ at: { host, port } }`: the answer is a server that listens there.
 */
process.on('message', ({ to, at }, outside) => {
  if (to) outside.on('connection', (caller) => join(caller, to))
  else {
    const inside = createServer()
    inside.listen(at, () => process.send({ at }, inside, () => inside.close()))
  }
})
process.once('disconnect', () => process.exit())

function join(caller, to) {
  const callee = connect(to)
  caller.pipe(callee).pipe(caller)
  for (const [one, other] of [
    [caller, callee],
    [callee, caller],
  ]) {
    one.on('error', () => undefined)
    one.once('close', () => other.destroy())
  }
}
