import { BlockList, isIPv4, isIPv6 } from 'node:net'

/** What `private` stands for: loopback, RFC 1918 and RFC 4193. */
const PRIVATE = ['127.0.0.0/8', '::1', '10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', 'fc00::/7']

/** Whose word is taken for where a connection comes from: `addresses` are single ones or, as `203.0.113.0/24`, networks. */
export class TrustedProxies {
  readonly #list = new BlockList()

  constructor(addresses: readonly string[]) {
    for (const entry of addresses.flatMap((entry) => (entry === 'private' ? PRIVATE : [entry]))) {
      const [address = '', bits] = entry.split('/')
      const family = isIPv6(address) ? 'ipv6' : 'ipv4'
      if (bits === undefined) this.#list.addAddress(address, family)
      else this.#list.addSubnet(address, Number(bits), family)
    }
  }

  /**
   * Where a connection comes from, in a form to count by: an IPv4 address, or the first 64 bits of an IPv6 address, since a household has
   * all that begin with them. `forwardedFor` counts from its right end, as far as proxies are trusted. Undefined: nobody who is not
   * trusted is known, and there is nobody to count.
   */
  clientOf(peer: string | undefined, forwardedFor: string | undefined): string | undefined {
    const hops = [...(forwardedFor?.split(',') ?? []), peer ?? '']
    for (const hop of hops.reverse()) {
      const address = plainAddress(hop.trim())
      if (address === undefined) return undefined
      if (!this.#list.check(address, isIPv6(address) ? 'ipv6' : 'ipv4')) return networkOf(address)
    }
    return undefined
  }
}

/** The address without brackets, port, zone, and as IPv4 where it is one; undefined: this is no address. */
function plainAddress(text: string): string | undefined {
  const [, bracketed] = /^\[(.+)\](?::\d+)?$/.exec(text) ?? []
  const [, withPort] = /^([\d.]+):\d+$/.exec(text) ?? []
  const [address = ''] = (bracketed ?? withPort ?? text).split('%')
  const [, mapped] = /^::ffff:([\d.]+)$/i.exec(address) ?? []
  const plain = mapped ?? address
  return isIPv4(plain) || isIPv6(plain) ? plain : undefined
}

/** An IPv4 address as it is, the first half of an IPv6 address. */
function networkOf(address: string): string {
  if (isIPv4(address)) return address
  const [head = '', tail = ''] = address.split('::')
  const groups = head === '' ? [] : head.split(':')
  const behind = tail === '' ? [] : tail.split(':')
  const zeros = address.includes('::')
    ? new Array<string>(Math.max(0, 8 - groups.length - behind.length)).fill('0')
    : []
  const first = [...groups, ...zeros, ...behind].slice(0, 4)
  return first.map((group) => Number.parseInt(group, 16).toString(16)).join(':')
}
