import type { Child } from './child.ts'
import type { LocalCluster } from './local-cluster.ts'
import type { News } from './news.ts'
import { statusText } from './status.ts'

/** What the prompt needs to know after a line. */
export type Outcome = 'go on' | 'quit'

const HELP = `  kill 2        ends node-2 at once, as a machine that loses power (SIGKILL)
  pause 2       stops node-2 where it is, as a machine that hangs (SIGSTOP); its lease runs out
  resume 2      lets it go on; it finds its rooms taken
  drain 2       node-2 hands over its rooms, moves its clients and ends (SIGTERM)
  start 2       starts node-2 anew
  redis down    ends Redis; redis up starts it again with its data
  status        every process, every room and its owner
  quit          ends everything; so does Ctrl-C

  kill, pause, resume and start take other processes too: kill control-1, pause redis, kill haproxy.`

const VERBS = ['kill', 'pause', 'resume', 'drain', 'start'] as const
type Verb = (typeof VERBS)[number]
const isVerb = (word: string): word is Verb => (VERBS as readonly string[]).includes(word)

/** What can be typed at the prompt, done to a cluster. */
export class Commands {
  readonly #cluster: LocalCluster
  readonly #news: News
  readonly #tell: (text: string) => void

  constructor(cluster: LocalCluster, news: News, tell: (text: string) => void) {
    this.#cluster = cluster
    this.#news = news
    this.#tell = tell
  }

  /** Does what a line says and tells what came of it. What takes longer (a start, a drain) goes on behind the prompt. */
  async run(line: string): Promise<Outcome> {
    const [word = '', ...rest] = line.trim().toLowerCase().split(/\s+/)
    switch (word) {
      case '':
        return 'go on'
      case 'quit':
      case 'exit':
        return 'quit'
      case 'help':
      case '?':
        this.#tell(HELP)
        return 'go on'
      case 'status':
        this.#tell(await statusText(this.#cluster))
        return 'go on'
      case 'redis':
        await this.#redis(rest[0])
        return 'go on'
    }
    if (isVerb(word)) await this.#act(word, rest)
    else this.#tell(`${word} is no command here; there are ${VERBS.join(', ')}, redis, status, help and quit`)
    return 'go on'
  }

  async #redis(word: string | undefined): Promise<void> {
    const redis = this.#cluster.child('redis')
    if (!redis) this.#tell('this Redis was given by REDIS_URL and is not started or ended from here')
    else if (word === 'down') await this.#act('kill', ['redis'])
    else if (word === 'up') await this.#act('start', ['redis'])
    else this.#tell('redis wants to know more: redis down, or redis up')
  }

  async #act(verb: Verb, [target, ...more]: readonly string[]): Promise<void> {
    const child = target === undefined ? undefined : this.#named(target)
    if (!child || more.length > 0) {
      const names = [...this.#cluster.children.keys()].join(', ')
      const wrong = target === undefined || child ? `${verb} takes one process` : `there is no ${target}`
      this.#tell(`${wrong}; there are ${names} (a number is a node: ${verb} 2)`)
      return
    }
    const obstacle = obstacleTo(verb, child)
    if (obstacle !== undefined) {
      this.#tell(obstacle)
      return
    }
    this.#news.struck(child.name)
    await this.#do(verb, child)
  }

  /** `2` and `node-2` are the same. */
  #named(target: string): Child | undefined {
    return this.#cluster.child(/^\d+$/.test(target) ? `node-${target}` : target)
  }

  async #do(verb: Verb, child: Child): Promise<void> {
    const { name } = child
    switch (verb) {
      case 'kill':
        await child.kill()
        return
      case 'pause':
        child.pause()
        this.#tell(`${name} is paused: it answers nobody, and does not know it`)
        return
      case 'resume':
        child.resume()
        this.#tell(`${name} goes on`)
        return
      case 'drain':
        child.end()
        this.#tell(`${name} is draining`)
        return
      case 'start':
        this.#tell(`${name} is starting`)
        child.start().then(
          () => this.#tell(`${name} is ready`),
          (error: Error) => this.#tell(error.message),
        )
    }
  }
}

/** Why this cannot be done to a process in its present state, with what can; undefined: nothing is in the way. */
function obstacleTo(verb: Verb, { name, state }: Child): string | undefined {
  const target = name.replace(/^node-/, '')
  if (process.platform === 'win32' && (verb === 'pause' || verb === 'resume'))
    return 'Windows cannot pause a process'
  if (verb === 'drain' && !name.startsWith('node-')) return `only nodes drain; kill ${name} ends it`
  if (verb === 'start') return state === 'ended' ? undefined : `${name} runs already (${state})`
  if (state === 'ended') return `${name} does not run; start ${target} starts it`
  if (verb === 'resume') return state === 'paused' ? undefined : `${name} is not paused`
  if (verb === 'pause' && state === 'paused')
    return `${name} is paused already; resume ${target} lets it go on`
  if (verb === 'drain' && state === 'paused') return `${name} is paused; resume ${target} first`
  if (verb === 'drain' && state === 'ending') return `${name} is draining already`
  return undefined
}
