import live from './live.json';
import run from './run.json';
import shell from './shell.json';

export default { ...shell, ...run, ...live };
