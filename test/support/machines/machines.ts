import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { type AddressInfo, createServer, type Server } from 'node:net'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Children } from '../../../deploy/local/processes.ts'
import { programOr } from '../debian-package.ts'
import { newFolder } from '../run-folder.ts'

const GATE = fileURLToPath(new URL('./gate.mjs', import.meta.url))
/** Name of this process for the machines. It is also the switch to which they are connected. */
const OUTSIDE = 'outside'

/** Returns the reason why there can be no `Machines` here. Undefined: there can. */
export function whyNoMachines(): string | undefined {
  if (process.platform !== 'linux' || process.getuid?.() !== 0) return 'this is not Linux as root'
  programOr('ip', 'iproute2')
  const probe = spawnSync('unshare', [
    ...['--net', '--mount', 'sh', '-ec'],
    'mount --bind /etc/hosts /etc/hosts; ip link add probe type bridge; ip link add one type veth peer name other',
  ])
  return probe.status === 0 ? undefined : `there are no network namespaces here: ${probe.stderr}`
}

/**
 * Machines with names and addresses: network namespaces that are connected by a bridge. No other network is reachable from them, or can reach
 * them. They end with this process, however it ends: a namespace exists as long as its processes.
 */
export class Machines {
  /** All names, `outside` first. */
  readonly #names: readonly string[]
  readonly #children: Children
  readonly #gate: ChildProcess
  readonly #doors = new Map<string, string>()

  private constructor(names: readonly string[], children: Children) {
    this.#names = names
    this.#children = children
    const [program = '', ...words] = this.command(OUTSIDE, [process.execPath, GATE])
    this.#gate = spawn(program, words, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
  }

  /** Starts machines. `ports`: by the name of each machine, the ports that this process reaches (`door`). */
  static async start(ports: Readonly<Record<string, readonly number[]>>): Promise<Machines> {
    const names = [OUTSIDE, ...Object.keys(ports)]
    const folder = await newFolder()
    const hosts = join(folder, 'hosts')
    const lines = names.map((name, index) => `${addressAt(index)} ${name}\n`)
    await writeFile(hosts, `127.0.0.1 localhost\n${lines.join('')}`)
    const children = new Children({ folder })
    const script = `mount --bind ${hosts} /etc/hosts; ip link set lo up; echo ready; exec sleep infinity`
    for (const name of names)
      children.add(name, {
        program: 'unshare',
        args: ['--net', '--mount', 'sh', '-ec', script],
        env: process.env,
        ready: /ready/,
      })
    let machines: Machines | undefined
    try {
      await Promise.all([...children.all.values()].map((child) => child.start()))
      machines = new Machines(names, children)
      machines.#connect()
      for (const [name, all] of Object.entries(ports))
        for (const port of all) await machines.#open(name, port)
      return machines
    } catch (error) {
      await (machines ?? children).close()
      throw error
    }
  }

  /** Returns the address of a machine in the network of the machines. */
  address(name: string): string {
    const index = this.#names.indexOf(name)
    if (index < 0) throw new Error(`there is no machine ${name}; there are ${this.#names.join(', ')}`)
    return addressAt(index)
  }

  /** Returns the command that runs a command on a machine. Signals to its process reach the command itself. */
  command(name: string, words: readonly string[]): string[] {
    const { pid } = this.#children.all.get(name)!
    return ['nsenter', `--target=${pid}`, '--net', '--mount', '--wd=/', ...words]
  }

  /** Returns an address on the loopback of this process that leads to a port of a machine. */
  door(name: string, port: number): string {
    const door = this.#doors.get(`${name}:${port}`)
    if (door === undefined) throw new Error(`${name}:${port} is none of the ports of \`start\``)
    return door
  }

  /** Returns a server of this process that the machines reach at `outside` and this port. */
  async listen(port: number): Promise<Server> {
    this.#gate.send({ at: { host: this.address(OUTSIDE), port } })
    const [, server] = (await once(this.#gate, 'message')) as [unknown, Server]
    return server
  }

  async close(): Promise<void> {
    this.#gate.kill('SIGKILL')
    await this.#children.close()
  }

  async #open(name: string, port: number): Promise<void> {
    const outside = createServer().listen(0, '127.0.0.1')
    await once(outside, 'listening')
    const door = outside.address() as AddressInfo
    const to = { host: this.address(name), port }
    await new Promise<void>((resolve, reject) =>
      this.#gate.send({ to }, outside, {}, (error) => (error ? reject(error) : resolve())),
    )
    outside.close()
    this.#doors.set(`${name}:${port}`, `${door.address}:${door.port}`)
  }

  /** Connects each machine to the switch by a pair of interfaces. */
  #connect(): void {
    const ip = (name: string, lines: readonly string[]): void => {
      const [program = '', ...words] = this.command(name, ['ip', '-batch', '-'])
      execFileSync(program, words, { input: lines.join('\n') })
    }
    const machines = this.#names.filter((name) => name !== OUTSIDE)
    ip(OUTSIDE, [
      'link add switch type bridge',
      'link set switch up',
      `address add ${this.address(OUTSIDE)}/24 dev switch`,
      ...machines.flatMap((name) => [
        `link add ${name} type veth peer name eth0 netns ${this.#children.all.get(name)!.pid}`,
        `link set ${name} master switch up`,
      ]),
    ])
    for (const name of machines)
      ip(name, [`address add ${this.address(name)}/24 dev eth0`, 'link set eth0 up'])
  }
}

const addressAt = (index: number): string => `10.0.0.${index + 1}`
