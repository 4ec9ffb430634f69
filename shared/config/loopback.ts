/** Whether a listening address can only be reached from this machine. */
export const isLoopback = (host: string): boolean =>
  host === 'localhost' ||
  host.endsWith('.localhost') ||
  /^127(\.\d{1,3}){3}$/.test(host) ||
  /^(::ffff:127(\.\d{1,3}){3}|::1|(0{1,4}:){7}0{0,3}1)$/i.test(host)
